from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadmaster_server.cli import simulation_plot
from loadmaster_server.cli.simulate import main

MESH = ["--mesh", "dp=2,pp=2"]
STATED = ["--lengths", "lognormal:700,1.2", "--seq-len", "4096", "--microbatches", "16"]


def simulated(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, object]:
    assert main([*argv, "--json"]) == 0
    tree: dict[str, object] = json.loads(capsys.readouterr().out)
    return tree


def test_simulate_when_the_sources_are_real_then_their_own_lengths_are_planned(spec_file, capsys):
    tree = simulated(capsys, str(spec_file()), *MESH, "--steps", "3")

    assert tree["lengths"] is None
    assert [step["step"] for step in tree["steps"]] == [0, 1, 2]
    web, chat = tree["sources"]
    assert web["tokens"] + chat["tokens"] == sum(step["num_tokens"] for step in tree["steps"])
    assert web["weight"] == pytest.approx(0.75)
    assert tree["bubble_limit"] == pytest.approx(1 / 2)  # G = 2 on two ranks: one microbatch each, two stages
    assert 0 < tree["efficiency"] <= tree["bubble_limit"]


def test_simulate_when_lengths_are_stated_then_no_file_is_read(spec_file, data_dir, capsys):
    path = spec_file()
    for file in (data_dir / "web").iterdir():
        file.unlink()

    tree = simulated(capsys, str(path), *MESH, *STATED, "--steps", "4", "--against", "naive,token_budget")

    assert tree["lengths"] == "lognormal:700,1.2"
    assert tree["against"]["naive"]["speedup"] > 1
    assert tree["against"]["token_budget"]["speedup"] > 1
    for step in tree["steps"]:
        assert step["occupancy"] >= step["fill"] > 0.9
        assert step["rank_max_over_mean"] >= step["rank_bound"] - 1e-9
        assert step["microbatch_max_over_mean"] >= step["microbatch_bound"] - 1e-9
        assert 0.9 * step["bubble_limit"] < step["efficiency"] < 1


def test_simulate_when_some_rows_are_measured_then_documents_have_their_lengths_and_never_end(spec_file, capsys):
    argv = [str(spec_file()), *MESH, "--steps", "4", "--microbatches", "64"]
    whole, some = simulated(capsys, *argv), simulated(capsys, *argv, "--rows", "8")

    assert some["lengths"] == "drawn from 8 measured rows of each source"
    assert whole["sources"][0]["epoch"] > 1
    assert some["sources"][0]["epoch"] == 0
    assert some["steps"][0]["num_tokens"] == pytest.approx(whole["steps"][0]["num_tokens"], rel=0.15)


def test_simulate_when_weights_change_then_a_source_shows_the_mean_over_the_steps(spec_file, capsys):
    ramp = "chat: [{at: 0, value: 1}, {at: 2, value: 9}]"
    tree = simulated(capsys, str(spec_file(("chat: 1", ramp))), *MESH, *STATED, "--steps", "4")
    assert tree["sources"][1]["weight"] == pytest.approx((0.25 + 0.25 + 0.75 + 0.75) / 4)


def test_simulate_when_repeated_then_the_figures_are_the_same(spec_file, capsys):
    argv = [str(spec_file()), *MESH, *STATED, "--steps", "2", "--against", "token_budget"]
    assert simulated(capsys, *argv) == simulated(capsys, *argv)


def test_simulate_when_the_device_is_twice_as_fast_then_a_step_takes_half(spec_file, capsys):
    argv = [str(spec_file()), *MESH, *STATED, "--steps", "1"]
    slow, fast = (simulated(capsys, *argv, "--flops", flops) for flops in ("1e14", "2e14"))
    assert slow["mean_step_s"] == pytest.approx(2 * fast["mean_step_s"])


def test_simulate_when_dp_does_not_divide_g_then_g_is_rounded_up(spec_file, capsys):
    tree = simulated(capsys, str(spec_file()), "--mesh", "dp=3", *STATED[:4], "--microbatches", "4", "--steps", "1")
    assert tree["steps"][0]["num_tokens"] > 5 * 4096  # six microbatches, not four


def test_simulate_when_asked_for_json_then_the_page_names_every_key(spec_file, capsys):
    tree = simulated(capsys, str(spec_file()), *MESH, *STATED, "--steps", "2", "--against", "naive")
    page = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()
    parts = [tree, tree["against"]["naive"], tree["steps"][0], tree["sources"][0], tree["host_memory"]]
    assert {key for part in parts for key in part if f"`{key}" not in page} == set()


def test_simulate_when_a_person_looks_then_all_tables_are_there(spec_file, capsys):
    assert main([str(spec_file()), *MESH, *STATED, "--steps", "12", "--against", "naive"]) == 0
    out = capsys.readouterr().out
    for words in ("exact 1F1B", "dp 2, pp 2", "bubble limit", "naive", "host memory", "of a perfect shuffle"):
        assert words in out


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--mesh", "dp=2,xp=4"], "must be axis=size"),
        (["--mesh", "dp=0"], "must be axis=size"),
        (["--mesh", "dp=2", "--against", "magic"], "must name loaders of naive, token_budget"),
        (["--mesh", "dp=2", "--lengths", "zipf"], "lengths must be one of"),
        (["--mesh", "dp=2", "--steps", "0"], "at least 1"),
        (["--mesh", "dp=2", "--flops", "x"], "number above 0"),
        (["--mesh", "dp=2", "--rows", "9", "--lengths", "pareto"], "give one of the two"),
    ],
)
def test_simulate_when_an_argument_is_wrong_then_the_rule_is_named(spec_file, capsys, argv: list[str], told: str):
    with pytest.raises(SystemExit) as ended:
        main([str(spec_file()), *argv])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_simulate_when_the_mesh_does_not_fit_the_batch_then_it_ends_with_the_rule(spec_file, capsys):
    assert main([str(spec_file()), "--mesh", "dp=2,cp=3", *STATED]) == 2
    assert "2 * cp must divide align" in capsys.readouterr().err


def test_simulate_when_matplotlib_is_missing_then_the_extra_is_named(spec_file, capsys, monkeypatch, tmp_path: Path):
    monkeypatch.setattr(simulation_plot.importlib.util, "find_spec", lambda name: None)
    assert main([str(spec_file()), *MESH, *STATED, "--plot", str(tmp_path / "a.png")]) == 2
    assert 'pip install "loadmaster[plot]"' in capsys.readouterr().err


def test_simulate_when_a_plot_is_wanted_then_the_file_is_a_picture(spec_file, tmp_path: Path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "a.png"
    assert main([str(spec_file()), *MESH, *STATED, "--steps", "3", "--against", "naive", "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
