"""What generators report of a server whose answers are known: the server, the scenarios, and one measurement."""
