"""Build the wheel and the source distribution of a commit, the same bytes each time: ``python tools/dist.py``.

Builds what is committed, in a folder of its own: neither other files of the checkout, nor its modes and times, nor the
umask get in. Times are the commit's. Beside them it writes what the wheel is made of (tools/sbom.py) and SHA256SUMS.
The same Python and the versions of requirements/dist.txt give the same bytes; zlib may compress otherwise elsewhere.
"""

import argparse
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path

import sbom

ROOT = Path(__file__).resolve().parent.parent


def git(*words: str) -> str:
    """The output of a git command in this checkout."""
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def export(commit: str, folder: Path) -> None:
    """Write the files of a commit into ``folder``, and a file COMMIT that names the commit."""
    words = ["git", "-C", str(ROOT), "-c", "tar.umask=0022", "archive", commit]
    content = subprocess.run(words, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(folder, filter="tar")
    (folder / "COMMIT").write_text(commit + "\n", encoding="utf-8")


def build(folder: Path, out: Path, epoch: int) -> None:
    """Build the source distribution, and from it the wheel, as pip would; ``epoch``: the Unix time of their files."""
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(folder)]
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    done = subprocess.run(words, env=environ, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"the build failed:\n{done.stdout}")


def tidied(path: Path, epoch: int) -> None:
    """Rewrite a source distribution in place: members sorted, all of the time ``epoch``, without an owner. setuptools
    leaves order, times and owners as they come.
    """
    with tarfile.open(path) as source:
        files = [(member, source.extractfile(member)) for member in sorted(source, key=lambda each: each.name)]
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as written:
            for member, content in files:
                member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
                member.mode = 0o755 if member.mode & 0o100 else 0o644
                member.pax_headers = {}
                written.addfile(member, content)
    with path.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed:
        packed.write(raw.getvalue())


def unfit(commit: str) -> list[str]:
    """The reasons for which a commit is not fit to be released; none if it is fit."""
    version = re.findall(r'^VERSION = "(.+)"$', git("show", f"{commit}:partition/version.py"), re.MULTILINE)[0]
    tags = git("tag", "--points-at", commit).split()
    heading = re.search(rf"^## {re.escape(version)} (.*)$", git("show", f"{commit}:CHANGELOG.md"), re.MULTILINE)
    chart = git("show", f"{commit}:ops/helm/stockade/Chart.yaml")
    faults = {
        f"no tag v{version}: the commit has {', '.join(tags) or 'none'}": f"v{version}" not in tags,
        f"CHANGELOG.md has no date of {version}": heading is None or "unreleased" in heading[1],
        f"ops/helm/stockade/Chart.yaml is not of {version}": f"version: {version}\n" not in chart,
        "the checkout has changes that are not committed": bool(git("status", "--porcelain", "--untracked-files=no")),
    }
    return [fault for fault, is_so in faults.items() if is_so]


def main(arguments: list[str]) -> None:
    """Build a commit's distributions into an empty folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder; what is in it is removed")
    parser.add_argument("--commit", default="HEAD", help="what to build")
    parser.add_argument("--release", action="store_true", help="only if the commit is fit to be released")
    chosen = parser.parse_args(arguments)
    commit = git("rev-parse", "--verify", f"{chosen.commit}^{{commit}}")
    epoch = int(git("log", "-1", "--format=%ct", commit))
    if chosen.release and (faults := unfit(commit)):
        raise SystemExit("not to be released:\n" + "\n".join(f"  - {fault}" for fault in faults))
    if chosen.commit == "HEAD" and git("status", "--porcelain", "--untracked-files=no"):
        print(f"built from {commit}: what is not committed is not in it", file=sys.stderr)
    os.umask(0o022)
    shutil.rmtree(chosen.out, ignore_errors=True)
    chosen.out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="stockade-dist-") as name:
        folder = Path(name, "source")
        export(commit, folder)
        build(folder, chosen.out, epoch)
    for path in chosen.out.glob("*.tar.gz"):
        tidied(path, epoch)
    sbom.main(chosen.out)
    built = sorted(path for path in chosen.out.iterdir())
    digests = {path.name: sha256(path.read_bytes()).hexdigest() for path in built}
    sums = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    (chosen.out / "SHA256SUMS").write_text(sums, encoding="utf-8")
    print(sums, end="")


if __name__ == "__main__":
    main(sys.argv[1:])
