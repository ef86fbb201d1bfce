"""The wire: Arrow schemas, messages, tickets, frames, errors, Flight and HTTP. pyarrow and numpy only."""
