"""The pages: one module a subject, each with its `PAGE` (routes and navigation). The navigation has their order."""

from nova_workers.console.navigation import PageModule
from nova_workers.console.pages import (
    agents,
    audit,
    chat,
    connect,
    files,
    fleet,
    home,
    inbox,
    keys,
    local_time,
    memories,
    notes,
    orchestrations,
    palette,
    runs,
    search,
    secrets,
    sessions,
    sign_in,
    skills,
    tasks,
    tenant,
    triggers,
    usage,
    webhooks,
    work_orders,
)

PAGES: tuple[PageModule, ...] = (
    sign_in.PAGE,
    local_time.PAGE,
    palette.PAGE,
    # Work
    home.PAGE,
    chat.PAGE,
    search.PAGE,
    runs.PAGE,
    orchestrations.PAGE,
    inbox.PAGE,
    # Build
    agents.PAGE,
    skills.PAGE,
    triggers.PAGE,
    tasks.PAGE,
    notes.PAGE,
    memories.PAGE,
    files.PAGE,
    # Account
    connect.PAGE,
    secrets.PAGE,
    webhooks.PAGE,
    keys.PAGE,
    sessions.PAGE,
    audit.PAGE,
    usage.PAGE,
    tenant.PAGE,
    work_orders.PAGE,
    # Fleet
    fleet.PAGE,
)
