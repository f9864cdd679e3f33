"""`mcfo reproduce pendulum`: the paper's tables 2 and 5 and its figures 3, 10 and 11, deep models from pixels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from mcfo.catalogue.registry import build
from mcfo.data.pendulum_videos import SIZE, View
from mcfo.experiments import pendulum_problem as videos
from mcfo.experiments.jobs import Job
from mcfo.experiments.outcomes import Claim, SummaryRow, at_most, stated
from mcfo.experiments.pendulum_problem import METHODS, PRESETS, Followed, Preset, Problem, build_problem
from mcfo.experiments.runs import Cell, Column, LearningOutcomes, Run, cost, draw_learning, learning
from mcfo.experiments.study import Study, TextTable
from mcfo.reports.figures import Figure, save_figure, styled, subplots
from mcfo.reports.image_plots import Film, draw_films

EVALUATED = ("prediction", "prediction_by_mean", "nll", "ess_at_test")
"""What is evaluated on the test videos; `nll` is that of a whole video."""
PAPER = {
    ("aesmc", "prediction"): (65.53, 51.13, 50.84, 37.87, 37.65, 36.93, 36.73),
    ("aesmc", "ess_at_test"): (160.0, 122.5, 112.5, 81.9, 80.6, 78.5, 79.9),
    ("mcfo-smc", "prediction"): (47.54, 37.18, 34.06, 36.17, 34.24, 34.21, 34.18),
    ("mcfo-smc", "ess_at_test"): (181.0, 173.0, 139.2, 130.1, 129.0, 128.8, 127.0),
    ("mcfo-pimh", "prediction"): (42.14, 33.82, 37.01, 33.71, 33.80, 33.74, 33.62),
    ("mcfo-pimh", "ess_at_test"): (195.6, 163.0, 168.8, 104.5, 129.9, 130.0, 125.1),
}
"""Prediction error and ESS in the paper's tables 2 and 5, for each of its K."""
_LOG_EVERY = 10
_SHOWN = (0, 1)
"""Test videos of the film strips."""
_WITH_LATENTS = ("aesmc", "mcfo-smc", "mcfo-lag")


def late_evaluations(lines: Sequence[Mapping[str, Any]], last: float) -> dict[str, list[float]]:
    """The evaluations in the last part of learning; those that were not finite are left out."""
    late = [line.get("watched", {}) for line in lines if line["step"] > (1 - last) * lines[-1]["step"]]
    return {metric: [one[metric] for one in late if one.get(metric) is not None] for metric in EVALUATED}


class PendulumOutcomes(LearningOutcomes):
    """How well each method predicts frames, beside what needs no learning."""

    shown = ("method", "K", "prediction error", "by predictive mean", "NLL of a video", "ESS", "motion")

    columns: ClassVar[dict[str, Column]] = {
        "prediction": Column("prediction error", 2, -1),
        "prediction_by_mean": Column("by predictive mean", 2, -1),
        "nll": Column("NLL of a video", 2, -1),
        "ess_at_test": Column("ESS", 2, 1),
        "motion": Column("motion", 2),
        "minutes": Column("minutes", 1),
    }
    curves: ClassVar = {
        name: name for name in (*EVALUATED, "log_evidence_per_step", "ess", "grad_norm_theta", "grad_norm_phi")
    }

    def __init__(self, size: Preset, problem: Problem, results: Mapping[str, Sequence[Run]]):
        super().__init__(size, problem, results)
        self.baselines = problem.baselines()

    def in_paper(self, cell: Cell, metric: str) -> float:
        _, method, particles = cell
        known: dict[int, float] = dict(zip(videos.PAPER_PARTICLES, PAPER.get((method, metric), ()), strict=False))
        return known.get(particles, math.nan)

    def extras(self, cell: Cell) -> dict[str, float]:
        runs = self.at(cell)
        minutes = float(np.mean([run.seconds / 60 for run in runs]))
        return {"minutes": minutes, "skipped": float(sum(run.skipped for run in runs))}

    def references(self) -> list[SummaryRow]:
        return [SummaryRow(name, 0, "prediction", mean) for name, mean in self.baselines.items()]

    def claims(self) -> list[Claim]:
        methods = dict.fromkeys(method for _, method, _ in self.cells)
        sizes = sorted({particles for *_, particles in self.cells})
        found = []
        for size in sizes:
            for one, other, source in (
                ("mcfo-smc", "aesmc", "paper"), ("mcfo-pimh", "aesmc", "paper"), ("mcfo-dreg", "aesmc", "ours"),
                ("mcfo-dreg", "mcfo-smc", "ours"), ("mcfo-lag", "aesmc", "ours"), ("mcfo-lag", "mcfo-smc", "ours"),
            ):  # fmt: skip
                if {one, other} <= methods.keys():
                    found += self._better(one, other, size, source)
            if "nasmc" in methods:
                found.append(self._nasmc(size))
        if len(sizes) > 1:
            found += [self._larger(method, sizes[0], sizes[-1]) for method in methods]
            if {"aesmc", "mcfo-dreg"} <= methods.keys():
                found.append(self._repaired(sizes[0], sizes[-1]))
        return [*found, *self._against_persistence()]

    def _better(self, one: str, other: str, size: int, source: str) -> list[Claim]:
        found = []
        wanted = {"prediction": ("prediction error", -1), "ess_at_test": ("ESS", 1)}
        if one == "mcfo-lag":
            wanted["motion"] = ("share of the motion foreseen", 1)
        for metric, (name, sign) in wanted.items():
            text = f"{name} of {one} {'above' if sign > 0 else 'below'} {other}'s"
            options = {"wanted": sign, "setting": f"K = {size}", "source": source}
            found.append(self.compare(text, ("", one, size), ("", other, size), metric, **options))
        return found

    def _nasmc(self, size: int) -> Claim:
        error, seeds = self.of(("", "nasmc", size), "prediction"), len(self.at(("", "nasmc", size)))
        # A run that came to nothing is one that failed.
        below = int((error.by_seed < self.baselines["persistence"]).sum())
        holds = {0: True, seeds: False}.get(below)
        test = f"{below} of {seeds} seeds below persistence, {self.baselines['persistence']:.1f}"
        return stated("nasmc fails to converge", holds, error.mean, test, setting=f"K = {size}", spread=error.error)

    def _larger(self, method: str, few: int, many: int) -> Claim:
        pair, text = (("", method, many), ("", method, few)), f"a larger K lowers the ESS of {method}"
        return self.compare(text, *pair, "ess_at_test", wanted=-1, setting=f"K = {few} to {many}")

    def _repaired(self, few: int, many: int) -> Claim:
        def change(method: str) -> float:
            first, last = (self.of(("", method, size), "ess_at_test").mean for size in (few, many))
            return last / first - 1

        theirs, ours = change("aesmc"), change("mcfo-dreg")
        holds = ours > theirs if theirs < 0 else None
        test = f"change of the ESS: aesmc {theirs:+.0%}, mcfo-dreg {ours:+.0%}" + ("" if theirs < 0 else ", no loss")
        text, where = "mcfo-dreg repairs what a larger K does to the ESS", f"K = {few} to {many}"
        return stated(text, holds, ours - theirs, test, setting=where, source="ours")

    def _against_persistence(self) -> list[Claim]:
        found = []
        for metric, name in (("prediction", "mean latent"), ("prediction_by_mean", "predictive mean")):
            means = {cell: self.of(cell, metric).mean for cell in self.cells}
            errors = {cell: mean for cell, mean in means.items() if math.isfinite(mean)}
            for which, choose in (("best", min), ("worst", max)):
                cell = choose(errors, key=errors.__getitem__, default=None)
                value = math.nan if cell is None else errors[cell]
                where = name if cell is None else f"{name}, {cell[1]}, K = {cell[2]}"
                text = f"the {which} method predicts better than persistence"
                found.append(at_most(text, value, self.baselines["persistence"], setting=where, source="ours"))
        return found

    def figures(self, folder: Path) -> list[Figure]:
        followed = {run.method: run.details for run in self.runs if run.details is not None}
        latents = {method: one for method, one in followed.items() if method in _WITH_LATENTS} or followed
        films = [self._film(video, followed) for video in _SHOWN if video < self.size.evaluated]
        shown = "K = {}, seed {}".format(*self.size.shown)
        metrics = {"prediction": "one-step prediction error", "ess_at_test": "ESS", "nll": "NLL of a video, nats"}
        levels = {("", "prediction"): self.baselines}
        caption = "The paper's figure 3, left and middle: test videos while learning. Bands: range over the seeds."
        return [
            draw_learning(folder / "curves.png", self.runs, metrics, levels, caption),
            Figure(
                draw_films(folder / "frames.png", films),
                "The paper's figures 3, right, and 10: gray frames, what was observed of them, and for each method the "
                f"one-step prediction and its absolute difference, {shown}.",
            ),
            Figure(
                draw_latents(folder / "latents.png", self.problem, latents, self.size.latent),
                "The paper's figure 11: latents of the test videos, filtered and one step ahead, colored by the true "
                f"angle, {shown}.",
            ),
        ]

    def _film(self, video: int, followed: dict[str, Followed]) -> Film:
        """Frames, one-step predictions and absolute differences, in rows."""
        gray, seen = (np.asarray(frames[video])[1:] for frames in (self.problem.gray, self.problem.test.observations))
        rows = {"gray frame": gray, "observed": seen}
        for method, one in followed.items():
            predicted = np.asarray(one.at_mean[video])
            rows |= {method: predicted, f"{method}, difference": np.abs(predicted - gray)}
        images = {name: frames.reshape(-1, SIZE, SIZE) for name, frames in rows.items()}
        return Film(f"test video {video + 1}, frames 2 to {len(gray) + 1}", images)

    def text(self) -> list[str]:
        size = self.size
        return [
            f"Videos of a swinging pendulum, {size.length} binary frames of 32 x 32 pixels, are learned by a model "
            f"with {size.latent} latents and {size.traces} traces of these, with networks for transition, emission and "
            f"proposal, by {len(size.methods)} methods, K = {', '.join(map(str, size.particles))}, "
            f"{len(size.seeds)} seeds.",
            "Center crop, rod at full contrast. In the paper the rate falls as far as here in about "
            f"{videos.PAPER_STEPS} iterations; that of a layer with n inputs is √(2/n) of it. "
            "Networks as in the paper, with ReLU and He's weights. The emission's bias starts at the log-odds of the "
            "mean frame, the transition near the identity, the proposal at the principal components of the frames. "
            "Traces are running means of the latents that no network moves and the emission does not read. MCFO: "
            f"{videos.PROPOSAL_PARTICLES} particles for phi; AESMC, NASMC and DReG: K for both.",
            "Baselines: the mean gray frame of the training videos (static); the binary frame before, which is what a "
            "model sees; the gray one, which no model sees (persistence); and, for whoever knows the simulator and its "
            "true state, the frame at the expected angle and the mean frame over the angle's noise.",
        ]

    def tables(self) -> list[TextTable]:
        size = self.size
        caption = (
            f"Mean ± standard deviation over the last {size.last:.0%} of learning and all seeds, on {size.evaluated} "
            f"of {size.test_series} test videos, by SMC with {size.evaluation_particles} particles. Prediction error: "
            "the sum over t = 2..T of the L2 norm between the gray frame and the frame at the predicted mean latent, "
            "as in the paper; by predictive mean: that of the mean over predicted latents. Motion: the share of the "
            "rod's motion that predictive means foresee, one for whoever knows the speed, zero for a frame that stays. "
            "Bold: the best of each K. In the paper: tables 2 and 5, whose crop, contrast and first state are unknown, "
            "so that its numbers have another scale."
        )
        paper = {cell: [self.in_paper(cell, one) for one in ("prediction", "ess_at_test")] for cell in self.cells}
        known = {cell: f"{error:.2f}, ESS {ess:.1f}" for cell, (error, ess) in paper.items() if not math.isnan(error)}
        return [self.method_table(caption, known)]


@styled
def draw_latents(path: Path, problem: Problem, followed: dict[str, Followed], size: int) -> Path:
    """The paper's figure 11: latents of all test videos, filtered and predicted, colored by the true angle.

    The first `size` latents are no traces.
    """
    deep, angles = size > 2, np.mod(problem.angles, 2 * np.pi)
    shape: Any = {"figsize": (3.4 * len(followed), 6.4), "squeeze": False}
    kind: Any = {"projection": "3d", "computed_zorder": False} if deep else {}
    figure, axes = subplots(2, len(followed), subplot_kw=kind, **shape)
    mappable: Any = None
    names = ("z₁", "z₂" if size > 1 else "angle", "z₃")
    for column, (method, one) in zip(axes.T, followed.items(), strict=True):
        parts = ("filtered", one.filtered, angles), ("predicted", one.predicted, angles[:, 1:])
        for axis, (title, latents, at) in zip(column, parts, strict=True):
            points = np.asarray(latents)[:, :, :6, :size]
            colors = np.repeat(at[:, :, None], points.shape[2], axis=2).ravel()
            shown = [*points.reshape(-1, size).T, colors][: 3 if deep else 2]
            look = {"cmap": "twilight", "vmin": 0, "vmax": 2 * np.pi, "s": 1.5 if deep else 3, "lw": 0}
            mappable = axis.scatter(*shown, c=colors, **look)
            axis.set_title(f"{method}, {title}", fontsize=9)
            axis.tick_params(labelsize=6, pad=-2 if deep else 2)
            for letter, name, _ in zip("xyz", names, shown, strict=False):
                getattr(axis, f"set_{letter}label")(name, fontsize=8, labelpad=-8 if deep else 1)
    bar = figure.colorbar(mappable, ax=axes, shrink=0.5, ticks=[0, np.pi, 2 * np.pi], location="bottom")
    bar.ax.set_xticklabels(["up", "down", "up"])
    bar.set_label("true angle of the pendulum", fontsize=8)
    return save_figure(figure, path)


class Pendulum(Study):
    """Deep state-space models of videos."""

    name = "pendulum"
    title = "Pendulum videos: a deep state-space model from pixels"
    presets: ClassVar = PRESETS
    outcomes = PendulumOutcomes

    def settings(self) -> dict[str, Any]:
        size = self.size
        rate = {"from": videos.FIRST_RATE, "to": size.last_rate, "course": size.schedule, "of a layer": "by-width"}
        particles = {"proposal_particles": videos.PROPOSAL_PARTICLES, "sweeps": videos.SWEEPS}
        return {**particles, "optimizer": "adam", "learning_rate": rate, "view": asdict(View())}

    def prepare(self) -> Problem:
        return build_problem(self.size, self.seed)

    def jobs(self, problem: Problem) -> dict[str, Job]:
        every = product(self.size.seeds, self.size.particles, self.size.methods)
        return {f"{method}-{count}-{seed}": self._job(problem, method, count, seed) for seed, count, method in every}

    def _job(self, problem: Problem, method: str, particles: int, seed: int) -> Job:
        """One run: networks, order of the data and noise by its seed; evaluated on the same videos as all others."""
        size, objective = self.size, METHODS[method](particles)
        key = jax.random.fold_in(jax.random.key(self.seed), 1)
        evaluation: Any = {"particles": size.evaluation_particles, "key": key}

        def numbers(one: Any, fitted: Any) -> tuple[dict[str, Any], Any]:
            followed = videos.follow_all(one.model, one.proposal, problem.test, **evaluation)
            motion = videos.motion_foreseen(np.asarray(followed.mean), problem.angles, problem.speeds)
            # Kept of the runs that are drawn alone: all of them would fill the memory.
            shown = followed if (particles, seed) == size.shown else None
            return {**late_evaluations(fitted.metrics, size.last), "motion": motion}, shown

        def start() -> tuple[Any, Any, Any]:
            built = build("deep", problem.train, {"latent": size.latent, "traces": size.traces, "network_seed": seed})
            return built.model, built.proposal, built.fixed

        return learning(
            cost(objective), ("", method, particles), start, problem.train, numbers=numbers, objective=objective,
            validation=jax.tree.map(lambda array: array[:1], problem.test),
            watch=lambda model, proposal: videos.scores(model, proposal, problem.test, problem.gray, **evaluation),
            checkpoint_seconds=60.0, steps=size.steps, batch=size.batch, seeds=(seed,),
            learning_rate=videos.FIRST_RATE, schedule=size.schedule,
            schedule_options=videos.SCHEDULES[size.schedule](size.last_rate), rates="by-width",
            log_every=min(_LOG_EVERY, size.steps),
            watch_every=max(_LOG_EVERY, size.steps // size.evaluations // _LOG_EVERY * _LOG_EVERY),
            evaluate_every=size.steps, evaluation_particles=particles, select="last", devices=1,
        )  # fmt: skip


STUDY = Pendulum
