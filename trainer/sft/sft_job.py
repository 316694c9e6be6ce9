"""The job of `python -m trainer sft`: play demonstrations and imitate them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from shared.console import print_line
from shared.run_files import RunSummary
from trainer.errors import RunError
from trainer.run.console import number
from trainer.run.folder import read_json, read_lines, to_json, write_json, write_text
from trainer.run.inputs import JobOptions
from trainer.run.job import Job
from trainer.run.metrics_log import MetricsCallback, StepProgress
from trainer.run.resume import drop_after
from trainer.run.summary import model_digest
from trainer.runtime.models import context_window
from trainer.sft.demonstrate import Demonstration, demonstrate
from trainer.sft.sources import ORACLE, SPLITS, consistent, scripts_of
from trainer.sft.training import build_trainer

BATCH = 8  # demonstrations per update
DEMONSTRATIONS = "demonstrations.jsonl"
DROPPED = "demonstrations_dropped.json"  # reason -> number of scripts


@dataclass(frozen=True)
class SftOptions(JobOptions):
    command: ClassVar[str] = "sft"
    taught: ClassVar[tuple[str, ...]] = SPLITS
    sources: Sequence[str] = (ORACLE,)  # see trainer.sft.sources
    rows: int = 0  # demonstrations to learn from, shared by the sources; 0: all


@dataclass
class SftJob(Job):
    options: SftOptions
    split: ClassVar[str | None] = None

    def run(self) -> RunSummary:
        with self._elapsed:  # sft runs in one process
            drop_after(self.folder, self._done, self._trained)
            rows = self._demonstrations()
            trained, steps = self._imitate(rows)
            return self._write_results(rows, steps, model_digest(trained))

    def _demonstrations(self) -> list[Demonstration]:
        path = self.folder.path / DEMONSTRATIONS
        if path.exists():
            return [Demonstration(**row) for row in read_lines(path)]
        config, sources, rows = self._config, self.options.sources, self.options.rows
        window = context_window(self.inputs.model)
        kept: list[Demonstration] = []
        dropped: Counter[str] = Counter()
        labels: dict[str, str] = {}
        for index, source in enumerate(sources):
            # what a source lacks, the next ones make up
            wanted = -(-(rows - len(kept)) // (len(sources) - index))
            if rows and not wanted:
                continue
            known = {(one.question_id, *one.actions) for one in kept}
            found, lost = demonstrate(
                [
                    one
                    for one in consistent(scripts_of(source, config), labels)
                    if (one.question_id, *one.actions) not in known
                ],
                wanted if rows else 0,
                self.inputs.tokenizer,
                config,
                min(config.max_context_tokens, int(window)),
                self._client,
            )
            tokens = sum(len(one.ids) for one in found)
            reasons = "".join(f"; {count} {reason}" for reason, count in lost.items())
            line = f"{source}: {len(found)} demonstrations, {tokens:,} tokens{reasons}"
            print_line(self.console, line)
            kept, dropped = kept + found, dropped + lost
        if not kept:
            reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
            raise RunError(
                f"no demonstration is left to learn from ({reasons or 'the sources have none'}): "
                "use other --source (a folder needs episodes of training questions of these data "
                "and difficulties, such as of 'evaluate --split train'), a --model that answers "
                "some right, or 'improve --labels gold', or raise max_context_tokens, "
                "max_new_tokens or step_budget"
            )
        write_json(self.folder.path / DROPPED, dropped)
        write_text(path, "".join(to_json(asdict(one)) + "\n" for one in kept))
        return kept

    def _imitate(self, rows: list[Demonstration]) -> tuple[Any, int]:
        def build(metrics: MetricsCallback, progress: StepProgress) -> Any:
            return build_trainer(
                self.inputs.model,
                self.inputs.tokenizer,
                self._config,
                rows,
                batch=BATCH,
                ranks=self.ranks,
                callbacks=[metrics, progress],
                output_dir=str(self.folder.checkpoints),
                run_name=self.folder.id,
            )

        def note(row: Mapping[str, Any]) -> str:
            return f"loss {number(row['loss'], '.3f')}" if "loss" in row else ""

        return self.train("SFT", build, note)

    def _write_results(
        self, rows: list[Demonstration], steps: int, trained_digest: str
    ) -> RunSummary:
        folder = self.folder
        losses = [row["loss"] for row in read_lines(folder.metrics) if "loss" in row]
        summary = self.write_summary(
            steps,
            trained_digest,
            sft={
                "demonstrations": Counter(row.source for row in rows),
                "dropped": read_json(folder.path / DROPPED),
                "tokens": sum(len(row.ids) for row in rows),
                "learned_tokens": sum(sum(row.learn) for row in rows),
                "loss": losses[-1] if losses else None,
            },
        )
        seconds = number(summary["cost"]["train_s"], ".0f")
        print_line(self.console, f"{len(rows)} demonstrations, {steps} steps in {seconds} s")
        self.print_files("summary", "model")
        return summary
