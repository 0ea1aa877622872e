"""Homes for clients (Nguyen et al., DEBS'19; Tanaka et al., RELOC)."""
