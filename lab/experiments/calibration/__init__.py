"""The calibration of load generators: each of them measures a test server whose answer times are known beforehand."""
