"""JSON text without a loss: numbers of any size, NaN and Infinity, lone surrogates, duplicate keys, any depth."""
