"""Figures with targets, kept results, the page and the plot."""
