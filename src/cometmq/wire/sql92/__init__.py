"""SQL92 filter expressions: tokens, parser, evaluation."""
