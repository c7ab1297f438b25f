"""What every package may use: errors with a remedy, files that are whole or not there, quantities and durations."""
