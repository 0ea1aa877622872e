"""Link policies: carry the links with the most data within bandwidths (Lambert & Sakellariou, MaxDataRcvd)."""
