"""Thin examples of the fabric under other systems' interfaces; none of them is a dependency."""
