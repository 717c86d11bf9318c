"""`nova orchestrations config`: check, show and replace the configuration of orchestrations."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from nova_workers.base.config import load_settings
from nova_workers.cli.command import Session, remote
from nova_workers.cli.resources import group, listing
from nova_workers.cli.terminal.output import Facts, JsonOption, Output, stamp
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.cli.terminal.text_input import read_file
from nova_workers.contracts.http.orchestration_config import (
    OrchestrationConfigInfo,
    OrchestrationConfigPut,
    OrchestrationConfigView,
)
from nova_workers.domain.orchestrations.rules.config.parsing import MODELS_FILE, parse_config
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.domain.orchestrations.rules.models.registry import known_models

app = group("Check, show and replace the configuration of orchestrations.")

_STDIN = "-"

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="YAML; a models.yaml beside it is read too. - reads stdin.")
]
VersionOption = Annotated[int | None, typer.Option("--version", min=1, help="An earlier version.")]
ModelsOption = Annotated[bool, typer.Option("--models", help="The models.yaml instead.")]
IfVersionOption = Annotated[
    int | None, typer.Option("--if-version", min=0, help="Refuses if the newest version is another.")
]


@app.command("check")
def check(file: FileArgument, json_mode: JsonOption = False) -> None:
    """Check a file without any server: every error with its line and column."""
    text, models_text = _read(file)
    Output(json_mode=json_mode).record(_parse(file, text, models_text or ""), _facts)


@remote(app, "show")
async def show(session: Session, version: VersionOption = None, models: ModelsOption = False) -> None:
    """Print the stored configuration, as a file that `set` takes."""
    configs = session.client.orchestration_config
    view = await configs.get() if version is None else await configs.version(version)
    session.out.write(view, partial(_show, models=models))


@remote(app, "set")
async def set_config(session: Session, file: FileArgument, if_version: IfVersionOption = None) -> None:
    """Replace the stored configuration by a file, as its next version; with an error nothing is stored.

    Without a models.yaml beside the file the stored one stays.
    """
    configs = session.client.orchestration_config
    text, models_text = _read(file)
    if models_text is None:
        stored = await configs.get()
        models_text, if_version = stored.models_text, stored.version if if_version is None else if_version
    # The server checks it again; here errors name the files.
    _parse(file, text, models_text)
    view = await configs.put(OrchestrationConfigPut(text=text, models_text=models_text), if_version=if_version)
    session.out.done(view, f"version {view.version}")


listing(
    app,
    "List the versions of the configuration, newest first.",
    lambda nova: nova.orchestration_config.versions,
    Rows[OrchestrationConfigInfo](
        "None was ever stored.",
        Column("version", lambda info: info.version),
        Column("made", lambda info: info.created_at),
        Column("by", lambda info: info.created_by),
        Column("bytes", lambda info: info.size_bytes),
    ),
    name="versions",
)


def _show(out: Output, view: OrchestrationConfigView, *, models: bool) -> None:
    text = view.models_text if models else view.text
    if text:
        out.text(text.rstrip("\n"))
    about = f"by {view.created_by}, {stamp(view.created_at)}" if view.version else "nothing stored: the defaults apply"
    out.note(f"version {view.version}, {about}")


def _read(file: str) -> tuple[str, str | None]:
    """Return a file's text and that of the ``models.yaml`` beside it, if there is one."""
    if file == _STDIN:
        return read_file(file), None
    beside = Path(file).parent / MODELS_FILE
    has_beside = beside.is_file() and Path(file).name != MODELS_FILE
    return read_file(file), read_file(str(beside)) if has_beside else None


def _parse(file: str, text: str, models_text: str) -> OrchestrationConfig:
    return parse_config(
        text,
        models_text,
        known=known_models(load_settings().model.aliases),
        file="stdin" if file == _STDIN else file,
        models_file=str(Path(file).parent / MODELS_FILE),
    )


def _facts(config: OrchestrationConfig) -> Facts:
    engine, defaults = config.engine, config.defaults
    yield "agents", f"at most {engine.max_concurrent_agents} at once, {engine.max_agent_depth} levels below the master"
    yield "time", f"{engine.agent_timeout_seconds:g} s of reasoning, {engine.tool_call_timeout_seconds:g} s a tool call"
    yield "providers", ", ".join(sorted(config.providers))
    for field in ("model", "master_model", "peer_model"):
        name = getattr(defaults, field)
        yield field, "" if name is None else _model(config, name)
    yield "peer_models", "\n".join(_model(config, name) for name in defaults.peer_models)
    for expert in config.experts.values():
        model = "" if expert.model is None else f" with {_model(config, expert.model)}"
        yield f"expert {expert.expert_id}", f"{expert.name}{model}"
    for name, plugin in config.plugins.items():
        tags = ", ".join(plugin.tags)
        yield f"plugin {name}", f"{plugin.type}, for {tags}" if tags else plugin.type


def _model(config: OrchestrationConfig, name: str) -> str:
    model = config.model(name)
    effort = f", effort {model.reasoning_effort}" if model.reasoning_effort else ""
    return f"{name} ({model.provider} {model.model_id}{effort})"
