"""The generated parts of every README: found by their markers, made from the code, the catalogues and the committed runs."""
