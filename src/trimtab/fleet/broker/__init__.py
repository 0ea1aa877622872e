"""What runs beside a broker's servers: the agent, processors, stores, reports."""
