"""``python -m vgpuctl.output DIRECTORY``: writes the schemas of this version there.

Refuses (exit status 1, nothing is written) what would break programs under the same version.
"""

import json
import sys
from pathlib import Path

from .schemas import OUTPUTS, breaks, file_name, schema_of


def main(directory: Path) -> int:
    """Writes the files; returns the exit status."""
    made = {directory / file_name(verb): schema_of(verb) for verb in OUTPUTS}
    broken = [
        f"{path}: {what}"
        for path, schema in made.items()
        if path.exists()
        for what in breaks(json.loads(path.read_text()), schema)
    ]
    for line in broken:
        print(line, file=sys.stderr)
    if broken:
        print("raise OUTPUT_VERSION in vgpuctl/render.py and rows.Version", file=sys.stderr)
        return 1
    for path, schema in made.items():
        path.write_text(json.dumps(schema, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
