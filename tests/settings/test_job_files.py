"""Job files: every key, and one line for each fault."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest

from gpuwatch.domain.jobs.job_values import CheckpointSpec, JobFiles, JobLimit, PilotSpec, ResultFiles
from gpuwatch.domain.watches.launch_spec import JobRelocateSpec
from gpuwatch.domain.watches.watch import Action, SpotPolicy
from gpuwatch.errors import SettingsError
from gpuwatch.settings.reference import job_json_schema
from gpuwatch.settings.validate import read_job_file

FULL = """
name = "qlora-8b"
image = "x/y:1"
command = "python train.py"
env = { A = "1", HF_TOKEN = { from_env = "HF" } }
inputs = [{ source = "./data", target = "/workspace/data" }]
results = [{ source = "out/*", target = "results" }]
checkpoint = { path = "ckpt", every = "20m", resume = "python train.py --resume" }
pilot = "1%"
deadline = 2026-12-01T08:00:00Z
active = ["22:00-08:00"]
priority = 2
retries = 3
depends_on = ["prep"]
require = ["dry_epoch"]
hours = "18-30"
limit = { max_price = 2.5, max_usd = 100 }
[resources]
gpu = ["H100"]
gpu_count = 2
min_vram_gib = 79
min_reputation = 0.9
disk_gb = 100
spot = "any"
available_for = "2d"
"""
BELOW = "expected a path below the work folder"
LEAST = 'command = "true"\nresources = { gpu = "H100" }\nlimit = { max_usd = 10 }\n'


def written(folder: Path, text: str, name: str = "night.toml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def faults(folder: Path, text: str) -> list[str]:
    with pytest.raises(SettingsError) as raised:
        read_job_file(written(folder, text))
    return [fault.removeprefix(f"{folder}/") for fault in raised.value.faults]


def test_every_key_of_a_job_file_is_read(tmp_path: Path) -> None:
    found = read_job_file(written(tmp_path, FULL))
    assert (found.name, found.command, found.script) == ("qlora-8b", "python train.py", None)
    assert (found.env, found.secret_env) == ({"A": "1"}, {"HF_TOKEN": "env:HF"})
    assert found.inputs == (JobFiles(source="./data", target="/workspace/data"),)
    assert found.results == (ResultFiles(source="out/*", target="results"),)
    assert found.checkpoint == CheckpointSpec(path="ckpt", every_s=1200.0, resume="python train.py --resume")
    assert found.pilot == PilotSpec(share=0.01)
    assert found.deadline_at == datetime(2026, 12, 1, 8, tzinfo=UTC)
    assert (found.priority, found.retries, found.depends_on) == (2, 3, ("prep",))
    assert found.limit == JobLimit(max_price_usd_gpu_hour=Decimal("2.5"), max_usd=Decimal(100))
    offers = found.resources
    assert offers.min_reputation == 0.9
    assert (offers.gpu, offers.gpu_count_min, offers.min_vram_gib, offers.disk_gb) == (("H100",), 2, 79.0, 100.0)
    assert (offers.spot, offers.action, offers.available_for_s) == (SpotPolicy.ANY, Action.LAUNCH, 172_800.0)
    assert (offers.active, offers.require) == (("22:00-08:00",), ("dry_epoch",))
    assert offers.launch is not None
    assert offers.launch.image == "x/y:1"


def test_the_least_job_is_named_by_its_file(tmp_path: Path) -> None:
    found = read_job_file(written(tmp_path, LEAST))
    assert (found.name, found.retries, found.deadline_s) == ("night", 2, None)


def test_the_schema_for_editors_agrees(tmp_path: Path) -> None:
    schema = job_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    full = tomllib.loads(FULL) | {"deadline": "2026-12-01T08:00:00Z"}
    jsonschema.validate(full, schema)
    jsonschema.validate(tomllib.loads(LEAST), schema)
    for wrong in ({"comand": "x"}, {"priority": "high"}, {"resources": {"gpu": "H100", "max_price": 1}}, {"limit": 3}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(full | wrong, schema)


def test_each_fault_is_one_line_with_file_line_and_key(tmp_path: Path) -> None:
    text = 'image = 3\ncomand = "x"\npriority = "high"\ndeadline = "soon"\n[resources]\ngpu = "H1000"\nmax_price = 2\n'
    found = faults(tmp_path, text + "[limit]\nmax_usd = -1\n")
    assert "night.toml:1: image: expected text in quotes" in found
    assert "night.toml:2: comand: unknown key; did you mean command?" in found
    assert "night.toml:3: priority: expected a whole number" in found
    assert "night.toml:4: deadline: expected a duration such as 90s, 15m, 6h, 2d or 1h30m" in found
    assert any(one.startswith("night.toml:6: resources.gpu: unknown GPU 'H1000'; did you mean") for one in found)
    assert any(one.startswith("night.toml:7: resources.max_price: unknown key") for one in found)
    assert "night.toml:9: limit.max_usd: expected a number above 0" in found
    assert len(found) == 7


def test_conditions_describe_an_offer_as_in_a_watch(tmp_path: Path) -> None:
    text = LEAST.replace('"H100" }', '"H100", when = "nvlink and gpu_ram >= 80", any = ["spot", "verified"] }')
    found = read_job_file(written(tmp_path, text)).resources
    assert (found.when, found.any_of) == ("nvlink and gpu_ram >= 80", ("spot", "verified"))
    (fault,) = faults(tmp_path, text.replace("gpu_ram", "gpu_rm"))
    assert fault.startswith("night.toml:2: resources.when: at character 12: unknown name gpu_rm; did you mean gpu_ram?")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (LEAST.replace('command = "true"\n', ""), "night.toml: expected either command or script"),
        (LEAST + 'script = "echo\\ntrue"\n', "night.toml: expected either command or script"),
        (LEAST.replace("max_usd = 10", ""), "night.toml:3: limit: expected max_price, max_usd or max_usd_hour"),
        (LEAST.replace('gpu = "H100"', "disk_gb = 9"), "night.toml:2: resources: expected gpu, or min_vram_gib"),
        (LEAST + 'name = "a b"\n', "night.toml:4: name: expected a name of at most 100 letters"),
        (LEAST + 'pilot = "0%"\n', "night.toml:4: pilot: expected a share above 0"),
        (LEAST + "env = { A = true }\n", 'night.toml:4: env.A: expected text in quotes, such as "1"'),
        (LEAST + 'env = { A = { from = "B" } }\n', "night.toml:4: env.A: expected text in quotes, { from_env"),
        (LEAST + 'depends_on = ["night"]\n', "night.toml: depends_on: a job cannot depend on itself"),
        (
            LEAST.replace('command = "true"', 'script = "no.sh"'),
            "night.toml:1: script: expected a script, or the path of its file",
        ),
        *(
            (LEAST + f'results = [{{ source = "{path}" }}]\n', f"night.toml:4: results[0].source: {BELOW}")
            for path in ("/workspace/out/*", "../out/*", "out/../../x", "~/out")
        ),
        (LEAST + 'results = "/workspace/out"\n', f"night.toml:4: results[0].source: {BELOW}"),
        (LEAST + 'checkpoint = { path = "/workspace/ckpt" }\n', f"night.toml:4: checkpoint.path: {BELOW}"),
        ("name = [", "night.toml:1: not valid TOML"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, fault: str) -> None:
    found = faults(tmp_path, text)
    assert len(found) == 1
    assert found[0].startswith(fault), found


@pytest.mark.parametrize(
    "line",
    [
        'results = [{ source = "out/*", target = "rclone::s3,secret_access_key=x:b/f" }]',
        'results = [{ source = "out/*", target = "https://example.org/put" }]',
        'results = [{ source = "out/*", target = "s3://" }]',
        'inputs = [{ source = "rclone:box,key=x:f", target = "in" }]',
        'checkpoint = { path = "ckpt", store = "ckpts" }',
    ],
)
def test_an_address_of_a_store_holds_no_key_and_no_option(tmp_path: Path, line: str) -> None:
    (tmp_path / "job.toml").write_text(f"{line}\n{LEAST}")
    with pytest.raises(SettingsError, match="expected s3://BUCKET/FOLDER or rclone:REMOTE:FOLDER"):
        read_job_file(tmp_path / "job.toml")


def test_results_inputs_and_checkpoints_may_lie_in_a_store(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(
        'inputs = [{ source = "rclone:box:a b/c", target = "in" }]\n'
        'results = [{ source = "out/*", target = "s3://bucket/x" }]\n'
        f'checkpoint = {{ path = "ckpt", store = "rclone:box:" }}\n{LEAST}'
    )
    found = read_job_file(tmp_path / "job.toml")
    assert (found.results[0].target, found.inputs[0].source) == ("s3://bucket/x", "rclone:box:a b/c")
    assert found.checkpoint is not None
    assert found.checkpoint.store == "rclone:box:"


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no\.toml: cannot read the file: No such file"):
        read_job_file(tmp_path / "no.toml")


def test_a_script_is_read_when_it_is_submitted(tmp_path: Path) -> None:
    written(tmp_path, "#!/bin/sh\ntrue\n", "run.sh")
    found = read_job_file(written(tmp_path, LEAST.replace('command = "true"', 'script = "run.sh"')))
    assert (found.command, found.script) == ("", "#!/bin/sh\ntrue\n")


def test_without_a_gpu_any_with_the_memory_is_taken(tmp_path: Path) -> None:
    found = read_job_file(written(tmp_path, LEAST.replace('gpu = "H100"', "min_vram_gib = 100")))
    assert "B200 SXM" in found.resources.gpu_names
    assert "RTX 4090" not in found.resources.gpu_names


@pytest.mark.parametrize(
    "pattern",
    ["/out/*", "~/out", "../out", "out/../..", ".", "./", "out//a", "a\\\\b", "out/**/*.txt", "$OUT/*", "out/{a,b}"],
)
def test_a_pattern_that_cannot_match_is_refused_before_anything_is_rented(tmp_path: Path, pattern: str) -> None:
    (fault,) = faults(tmp_path, f'results = ["{pattern}"]\n{LEAST}')
    assert "expected a path" in fault


def test_a_pattern_may_hold_the_value_of_a_sweep(tmp_path: Path) -> None:
    assert read_job_file(written(tmp_path, f'results = ["out/{{lr}}/*"]\n{LEAST}')).results[0].source == "out/{lr}/*"


def test_relocate_is_a_word_or_a_table_and_off_by_default(tmp_path: Path) -> None:
    moves = 'checkpoint = { path = "ckpt" }\nrelocate = "move"\n'
    found = read_job_file(written(tmp_path, moves + LEAST)).relocate
    assert found == JobRelocateSpec(action="move", min_saving=0.15, after_s=7200.0, max_per_day=3)
    table = 'relocate = { min_saving = "30%", after = "1h", max_per_day = 1 }\n'
    assert read_job_file(written(tmp_path, table + LEAST)).relocate == JobRelocateSpec(
        action="alert", min_saving=0.3, after_s=3600.0, max_per_day=1
    )
    assert read_job_file(written(tmp_path, LEAST)).relocate is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('relocate = "move"\n', 'relocate = "move" needs checkpoint, or the work would begin anew'),
        (
            'relocate = "move"\naction = "ask"\ncheckpoint = { path = "c" }\n',
            'relocate = "move" needs action = "launch"',
        ),
        ('relocate = "alert"\nnodes = 2\n', "relocate: expected only with nodes = 1"),
        ('relocate = "yes"\n', "relocate.action: expected 'alert' or 'move'"),
    ],
)
def test_a_job_that_could_not_go_on_by_itself_is_not_moved(tmp_path: Path, text: str, fault: str) -> None:
    (found,) = faults(tmp_path, text + LEAST)
    assert fault in found


PREPARE = """
[prepare]
command = "python clean.py"
env = { TOKEN = { from_env = "HF" } }
inputs = ["raw"]
outputs = "data/*"
limit = { max_price = 0.1 }
hours = 2
resources = { min_vcpu = 8 }
"""


def test_a_step_before_runs_without_a_gpu_unless_it_says_otherwise(tmp_path: Path) -> None:
    found = read_job_file(written(tmp_path, LEAST + PREPARE)).prepare
    assert found is not None
    assert (found.resources.gpu, found.resources.wants_no_gpu, found.resources.min_vcpu) == (("none",), True, 8)
    assert (found.secret_env, found.inputs, found.outputs) == (
        {"TOKEN": "env:HF"},
        (JobFiles(source="raw", target="."),),
        ("data/*",),
    )
    least = read_job_file(written(tmp_path, LEAST + '[prepare]\ncommand = "true"\n'))
    assert least.prepare is not None
    assert least.prepare.resources.wants_no_gpu
    own = read_job_file(written(tmp_path, LEAST + PREPARE.replace("hours = 2", 'gpu = "L4"'))).prepare
    assert own is not None
    assert own.resources.gpu_count_min == 1
    jsonschema.validate(tomllib.loads(LEAST + PREPARE), job_json_schema())


def test_the_script_of_a_step_before_is_read_when_it_is_submitted(tmp_path: Path) -> None:
    written(tmp_path, "#!/bin/sh\ntrue\n", "clean.sh")
    text = LEAST + PREPARE.replace('command = "python clean.py"', 'script = "clean.sh"')
    found = read_job_file(written(tmp_path, text)).prepare
    assert found is not None
    assert (found.command, found.script) == ("", "#!/bin/sh\ntrue\n")


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ('command = "python clean.py"', "", "night.toml:5: prepare: expected either command or script"),
        ('command = "python clean.py"', 'script = "no.sh"', "night.toml:6: prepare.script: expected a script, or the"),
        ("limit = { max_price = 0.1 }", "limit = {}", "night.toml:10: prepare.limit: expected max_price, max_usd or"),
        ("hours = 2", 'gpu = "H1000"', "night.toml:11: prepare.gpu: unknown GPU 'H1000'"),
        ("hours = 2", 'gpu = ["none", "L4"]', "night.toml:11: prepare.gpu: "),
        ("min_vcpu = 8", 'gpu = "L4"', "night.toml:5: prepare: expected gpu beside command, not in"),
        ('outputs = "data/*"', 'outputs = "/data"', "night.toml:9: prepare.outputs[0]: expected a path below"),
        ("min_vcpu = 8", "max_price = 1", "night.toml:12: prepare.resources.max_price: unknown key"),
        ("min_vcpu = 8", "min_cuda = 12", "night.toml:12: prepare.resources.min_cuda: expected only with GPUs"),
        ("hours = 2", "retries = 2", "night.toml:11: prepare.retries: unknown key"),
        (
            'outputs = "data/*"',
            'results = "data/*"',
            "night.toml:9: prepare.results: unknown key; did you mean outputs?",
        ),
        ('inputs = ["raw"]', 'inputs = ["rclone:x"]', "night.toml:5: prepare: 'rclone:x': expected s3://"),
    ],
)
def test_what_is_wrong_in_a_step_before_is_one_line(tmp_path: Path, before: str, after: str, fault: str) -> None:
    (found,) = faults(tmp_path, LEAST + PREPARE.replace(before, after))
    assert found.startswith(fault)


def test_a_step_before_needs_a_job_on_one_machine(tmp_path: Path) -> None:
    (found,) = faults(tmp_path, "nodes = 2\n" + LEAST + PREPARE)
    assert "prepare: expected only with nodes = 1" in found
