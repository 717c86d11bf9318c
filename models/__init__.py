"""The ledger's tables. Importing this package registers all of them in one metadata."""

from sqlmodel.main import default_registry

from models.agents import Agent, AgentVersion
from models.base import WITHOUT_STATISTICS, metadata
from models.delivery import Webhook
from models.effects import Delivery, Effect, Embedding, Memory, MessageText
from models.orchestration_configs import OrchestrationConfig
from models.orchestrations import Orchestration, OrchestrationAgent, OrchestrationMessage
from models.order_policies import WorkOrderPolicy, WorkOrderSecret
from models.orders import WorkOrder, WorkOrderKey, WorkOrderPart, WorkOrderTrail
from models.rankings import ModelJudgement, ModelRanking
from models.rights.audit import AuditEvent
from models.rights.audit_chain import AuditChain
from models.rights.ceilings import keep_ceilings
from models.rights.row_security import protect
from models.runs import IdempotencyKey, Run, RunAttempt, RunWait, Switch, WorkerSession
from models.schedule import Trigger, TriggerFiring
from models.sessions import EngineSession
from models.tasks import Task, TaskChange, TaskResource, TaskStep
from models.tenancy import ApiKey, Lease, Tenant
from models.threads import Thread, ThreadHead
from models.turns import Compaction, Message, ToolCall, Turn, Usage
from models.upkeep import UpkeepCursor
from models.workspace import Note, Secret, SentFile, Skill, SkillFile

__all__ = [
    "WITHOUT_STATISTICS",
    "Agent",
    "AgentVersion",
    "ApiKey",
    "AuditChain",
    "AuditEvent",
    "Compaction",
    "Delivery",
    "Effect",
    "Embedding",
    "EngineSession",
    "IdempotencyKey",
    "Lease",
    "Memory",
    "Message",
    "MessageText",
    "ModelJudgement",
    "ModelRanking",
    "Note",
    "Orchestration",
    "OrchestrationAgent",
    "OrchestrationConfig",
    "OrchestrationMessage",
    "Run",
    "RunAttempt",
    "RunWait",
    "Secret",
    "SentFile",
    "Skill",
    "SkillFile",
    "Switch",
    "Task",
    "TaskChange",
    "TaskResource",
    "TaskStep",
    "Tenant",
    "Thread",
    "ThreadHead",
    "ToolCall",
    "Trigger",
    "TriggerFiring",
    "Turn",
    "UpkeepCursor",
    "Usage",
    "Webhook",
    "WorkOrder",
    "WorkOrderKey",
    "WorkOrderPart",
    "WorkOrderPolicy",
    "WorkOrderSecret",
    "WorkOrderTrail",
    "WorkerSession",
    "keep_ceilings",
    "metadata",
    "protect",
]

for _mapper in default_registry.mappers:
    # The first line of a class's docstring is the comment that `\d+` shows.
    metadata.tables[_mapper.class_.__tablename__].comment = (_mapper.class_.__doc__ or "").partition("\n")[0]
