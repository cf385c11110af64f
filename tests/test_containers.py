"""Dockerfiles, constraints and pyproject agree, and images are small, pinned and run without root."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tasks import resources

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMAGES = ("cpu", "gpu")


def instructions(image: str) -> list[tuple[str, str]]:
    """Return (instruction, arguments) of a Dockerfile, continued lines joined, comments dropped."""
    text = (ROOT / "containers" / f"{image}.Dockerfile").read_text()
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#")).replace("\\\n", " ")
    pairs = (line.split(None, 1) for line in lines.splitlines() if line.strip())
    return [(name.upper(), rest) for name, rest in pairs]


def arguments(image: str, name: str) -> list[str]:
    return [rest for instruction, rest in instructions(image) if instruction == name]


def pins(image: str) -> dict[str, str]:
    lines = (ROOT / "containers" / f"{image}.constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def extras(image: str) -> set[str]:
    found = re.search(r"'\.\[([a-z0-9,]+)\]'", " ".join(arguments(image, "RUN")))
    assert found is not None, "the image does not install the project with extras"
    return set(found.group(1).split(","))


def requirements(image: str) -> list[Requirement]:
    optional = PROJECT["optional-dependencies"]
    texts = [*PROJECT["dependencies"], *(text for extra in sorted(extras(image)) for text in optional[extra])]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("image", IMAGES)
def test_every_requirement_of_the_image_is_pinned_to_a_version_that_pyproject_allows(image: str) -> None:
    pinned = pins(image)
    for requirement in requirements(image):
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"{name} is not in {image}.constraints.txt"
        assert requirement.specifier.contains(pinned[name]), f"{name}=={pinned[name]} is not {requirement.specifier}"


@pytest.mark.parametrize("image", IMAGES)
def test_all_installs_obey_the_constraints_and_keep_no_cache(image: str) -> None:
    installs = [run for run in arguments(image, "RUN") if "pip install" in run]
    assert installs
    assert all(f"--constraint {image}.constraints.txt" in run for run in installs)
    assert any("PIP_NO_CACHE_DIR=1" in env for env in arguments(image, "ENV"))


@pytest.mark.parametrize("image", IMAGES)
def test_base_images_are_slim_exact_and_of_a_python_that_the_project_supports(image: str) -> None:
    bases = arguments(image, "FROM")
    assert len(bases) == 2, "one stage builds, the other runs"
    for base in bases:
        version = re.match(r"python:(\d+\.\d+\.\d+)-slim-bookworm\b", base)
        assert version is not None, base
        assert SpecifierSet(PROJECT["requires-python"]).contains(version.group(1))


@pytest.mark.parametrize("image", IMAGES)
def test_the_image_runs_as_an_ordinary_user_from_a_folder_it_may_write_to(image: str) -> None:
    made = instructions(image)
    name, user = made[-1]
    assert name == "USER"
    assert user.isdecimal(), f"runAsNonRoot refuses the name {user!r}: the kubelet cannot tell that it is not root"
    last_folder = [rest for name, rest in made if name == "WORKDIR"][-1]
    runs = arguments(image, "RUN")
    assert any(f"useradd --uid {user} " in run and f"chown spiral:spiral {last_folder} /root" in run for run in runs)


@pytest.mark.parametrize("image", IMAGES)
def test_nothing_in_the_image_comes_before_shipped_code_or_mixes_with_it(image: str) -> None:
    """Flyte unpacks shipped code into the working folder and puts that folder last on PYTHONPATH.

    A PYTHONPATH of the image would win over it, and a module that only the image has, in a folder of the shipped
    package, would count in the hash of the code.
    """
    assert not any("PYTHONPATH=" in env for env in arguments(image, "ENV"))
    last_stage = instructions(image)[[name for name, _ in instructions(image)].index("FROM", 1) :]
    assert [rest.split()[0] for name, rest in last_stage if name == "COPY"] == ["--from=build"]


@pytest.mark.parametrize("image", IMAGES)
def test_the_code_lies_once_in_an_image_beside_the_packages_it_needs(image: str) -> None:
    """The cache version and the code's hash are made of spiral_lib and tasks in one folder."""
    site = "/opt/spiral/lib/python3.11/site-packages"
    copied = arguments(image, "COPY")
    assert {f"tasks {site}/tasks", f"workflows {site}/workflows", "spiral_lib spiral_lib"} <= set(copied)
    assert all(base.startswith("python:3.11.") for base in arguments(image, "FROM")), f"{site} is of another Python"


@pytest.mark.parametrize("image", IMAGES)
def test_what_is_copied_exists_and_the_build_context_holds_it(image: str) -> None:
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignore[0] == "*"
    for copied in arguments(image, "COPY"):
        if "--from=" in copied:
            continue
        for source in [part for part in copied.split() if not part.startswith("--")][:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignore or source.startswith("containers/"), f"{source} is not in the build context"


@pytest.mark.parametrize("image", IMAGES)
def test_no_secret_and_no_download_by_hand_goes_into_an_image(image: str) -> None:
    text = " ".join(rest for _, rest in instructions(image))
    assert not re.search(r"(TOKEN|PASSWORD|SECRET|_KEY)\s*=", text)
    assert not re.search(r"\b(curl|wget)\b|https?://", text)
    assert not arguments(image, "ADD")


def test_registered_image_names_carry_the_projects_version() -> None:
    assert resources.CPU_IMAGE.endswith(f"spiral-cpu:{PROJECT['version']}")
    assert resources.GPU_IMAGE.endswith(f"spiral-gpu:{PROJECT['version']}")


@pytest.mark.parametrize("image", IMAGES)
def test_images_hold_the_extras_that_their_tasks_may_ask_for(image: str) -> None:
    """Evaluation needs lm-eval and OpenSpiel (exploitability), a tournament openskill, ``learner.lora_rank`` peft."""
    assert {"flyte", "elastic", "eval", "exact", "ladder", "lora"} <= extras(image)


def test_gpu_pins_are_of_torchs_cuda_build_and_its_compiler_is_of_the_same_cuda() -> None:
    """A CPU build of torch asks for none of these, so pins resolved with one contradict the build that is installed."""
    pinned = pins("gpu")
    assert {"cuda-toolkit", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-nccl-cu13", "triton"} <= set(pinned)
    cuda = pinned["cuda-toolkit"].rsplit(".", 2)[0]
    parts = ("runtime", "nvrtc", "cupti", "nvcc", "crt", "cccl")
    found = {part: pinned[f"nvidia-cuda-{part}"].rsplit(".", 1)[0] for part in parts}
    assert set(found.values()) == {cuda}, found
    assert pinned["nvidia-nvvm"].startswith(f"{cuda}.")


def test_the_gpu_image_holds_what_gpu_presets_need_and_the_cpu_image_does_not() -> None:
    assert {"vllm", "deepspeed"} <= set(pins("gpu"))
    assert not {"vllm", "deepspeed"} & set(pins("cpu"))
