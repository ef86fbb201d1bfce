"""The wire: Arrow schemas, messages, tickets, frames, errors, and how to call and serve them. pyarrow and numpy only."""
