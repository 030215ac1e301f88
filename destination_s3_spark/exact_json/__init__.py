"""Lossless JSON text: numbers of any size, NaN and Infinity, lone surrogates, duplicate keys, any depth."""
