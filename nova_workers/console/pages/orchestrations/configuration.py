"""The configuration of orchestrations: its text, its versions, and the models that it gives to agents."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.errors import InvalidInput, NotFound, Rejected
from nova_workers.base.vocabulary import TASK_CATEGORIES
from nova_workers.client.client import NovaClient
from nova_workers.console.diffs import field_diffs
from nova_workers.console.forms import Form, build, read_form
from nova_workers.console.paging import cursor_of, filter_of, pager
from nova_workers.console.rendering import render, see_other
from nova_workers.console.state import client_of
from nova_workers.contracts.http.orchestration_config import (
    JudgementView,
    OrchestrationConfigPut,
    OrchestrationConfigView,
    OrchestrationModelView,
    RankedScoreView,
)

_PATH = "/orchestrations/configuration"
_VERSIONS = 20


class RankedModel(NamedTuple):
    """A model, and how good it is for the chosen kind of work."""

    view: OrchestrationModelView
    score: RankedScoreView | None


async def show(request: Request) -> Response:
    """Show the configuration in an editor, and store it as the next version."""
    calls, form = client_of(request).orchestration_config, Form()
    errors: Sequence[Mapping[str, object]] = ()
    if request.method == "POST":
        form = await read_form(request)
        try:
            body = build(OrchestrationConfigPut, {name: form.value(name) for name in ("text", "models_text")})
            stored = await calls.put(body, if_version=_number(form.value("version")))
        except Rejected as error:
            form = form.refused(error)
            errors = cast(list[dict[str, object]], error.fields.get("errors") or [])
        else:
            return see_other(request, _PATH, flash=f"Version {stored.version} applies to new orchestrations.")
    current, versions = await asyncio.gather(calls.get(), calls.versions(limit=_VERSIONS, cursor=cursor_of(request)))
    return render(
        request,
        "orchestrations/configuration.html",
        status=422 if form.problem else 200,
        form=form,
        errors=errors,
        current=current,
        versions=versions.items,
        pager=pager(request, versions),
    )


async def show_version(request: Request) -> Response:
    """Show what the configuration was, and what restoring it would change."""
    calls = client_of(request).orchestration_config
    version, current = await asyncio.gather(calls.version(request.path_params["version"]), calls.get())
    return render(
        request,
        "orchestrations/version.html",
        version=version,
        current=current,
        diffs=field_diffs(_texts(current), _texts(version)),
    )


async def show_models(request: Request) -> Response:
    """Show the models, the best for a kind of work first."""
    client, category = client_of(request), filter_of(request, "for") or "general"
    models, judgement = await asyncio.gather(client.orchestration_models.list(), _judgement(client))
    shows_all = filter_of(request, "show") == "all"
    ranked = [
        RankedModel(model, next((score for score in model.scores if score.category == category), None))
        for model in models.items
        if shows_all or _can_be_chosen(model)
    ]
    ranked.sort(key=lambda each: (not _can_be_chosen(each.view), -(each.score.score if each.score else 0.0)))
    return render(
        request,
        "orchestrations/models.html",
        models=ranked,
        total=len(models.items),
        shows_all=shows_all,
        judgement=judgement,
        category=category,
        categories=TASK_CATEGORIES,
    )


def _can_be_chosen(model: OrchestrationModelView) -> bool:
    return model.enabled and model.permitted and model.unavailable is None


async def _judgement(client: NovaClient) -> JudgementView | None:
    try:
        return await client.orchestration_models.judgement()
    except NotFound:
        return None


def _texts(config: OrchestrationConfigView) -> dict[str, object]:
    return {"orchestration.yaml": config.text, "models.yaml": config.models_text}


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise InvalidInput(f"{text!r} is not the number of a version; open the page again.", field="version")
    return int(text)
