"""Calibration of the generators against a server with known answers: the server, the scenarios, and one measurement."""
