"""Package the chart for Helm: ``python deploy/environment/chart.py FOLDER``, part of ``make release``.

`helm package` reads the whole chart and refuses a damaged one, but writes the time at which it ran: the archive is
packed again with the time of the commit (``SOURCE_DATE_EPOCH``), so that two builds of one commit are equal.
"""

import gzip
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "nova-workers"
HELM = ROOT / ".cache" / "kubernetes" / "helm"


def package(folder: Path, *, time_s: int) -> Path:
    """Package the chart into a folder, and return the archive.

    Args:
        folder: For the archive, whose name is not that of the client for TypeScript of an equal version.
        time_s: The time of every file in it, in seconds since 1970.
    """
    with tempfile.TemporaryDirectory(prefix="nova-chart-") as temporary:
        command = (str(HELM), "package", str(CHART), "--destination", temporary)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"chart: helm refuses it: {done.stderr.strip()}")
        (made,) = Path(temporary).glob("*.tgz")
        path = folder / made.name.replace("nova-workers-", "nova-workers-chart-")
        path.write_bytes(_with_time(made, time_s))
    return path


def _with_time(archive: Path, time_s: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(archive) as made, tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as again:
        for member in sorted(made.getmembers(), key=lambda member: member.name):
            member.mtime, member.pax_headers = time_s, {}
            again.addfile(member, made.extractfile(member))
    return gzip.compress(packed.getvalue(), mtime=time_s)


def main() -> None:
    """Package the chart with the time of the release."""
    if not HELM.exists():
        sys.exit("chart: helm is missing; `make kubernetes` fetches it")
    print(package(Path(sys.argv[1]), time_s=int(os.environ["SOURCE_DATE_EPOCH"])))


if __name__ == "__main__":
    main()
