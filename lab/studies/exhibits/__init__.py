"""The figures and tables of committed runs, as notebooks and the report show them."""
