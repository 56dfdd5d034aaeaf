"""`cometmq pipeline` for `spark-submit`, which wants a file.

spark-submit --master yarn examples/submit_pipeline.py archive -f archive.toml
"""

import sys

from cometmq.cli.main import main

sys.argv.insert(1, "pipeline")
main()
