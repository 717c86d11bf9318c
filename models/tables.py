"""All tables of the ledger. Importing this module registers them in one metadata."""

from sqlmodel.main import default_registry

from .agents import Agent, AgentVersion
from .base import WITHOUT_STATISTICS, metadata
from .changes import Change
from .datasets import Dataset, DatasetExample
from .delivery import Webhook
from .effects import Delivery, Effect, Embedding, Memory, MessageText
from .evaluations import Evaluation, EvaluationJudgement, EvaluationTrial
from .feedback import Feedback
from .orchestration_configs import OrchestrationConfig
from .orchestrations import Orchestration, OrchestrationAgent, OrchestrationMessage
from .order_policies import WorkOrderPolicy, WorkOrderSecret
from .orders import WorkOrder, WorkOrderKey, WorkOrderPart, WorkOrderTrail
from .projects import ProjectItem
from .rankings import ModelJudgement, ModelRanking
from .requests import ModelCall, RequestPart
from .rights.audit import AuditEvent
from .rights.audit_chain import AuditChain
from .rights.ceilings import keep_ceilings
from .rights.row_security import protect
from .rollouts import Rollout
from .runs import IdempotencyKey, Run, RunAttempt, RunWait, Switch, WorkerDrainOrder, WorkerSession
from .sampling import RunSample, Sampling
from .schedule import Trigger, TriggerFiring
from .sessions import EngineSession
from .tasks import Task, TaskChange, TaskResource, TaskStep
from .tenancy import ApiKey, Lease, Person, Tenant
from .threads import Thread, ThreadHead
from .turns import Compaction, Message, ToolCall, Turn, Usage
from .upkeep import UpkeepCursor
from .workspace import Note, Secret, SentFile, Skill, SkillFile

__all__ = [
    "WITHOUT_STATISTICS",
    "Agent",
    "AgentVersion",
    "ApiKey",
    "AuditChain",
    "AuditEvent",
    "Change",
    "Compaction",
    "Dataset",
    "DatasetExample",
    "Delivery",
    "Effect",
    "Embedding",
    "EngineSession",
    "Evaluation",
    "EvaluationJudgement",
    "EvaluationTrial",
    "Feedback",
    "IdempotencyKey",
    "Lease",
    "Memory",
    "Message",
    "MessageText",
    "ModelCall",
    "ModelJudgement",
    "ModelRanking",
    "Note",
    "Orchestration",
    "OrchestrationAgent",
    "OrchestrationConfig",
    "OrchestrationMessage",
    "Person",
    "ProjectItem",
    "RequestPart",
    "Rollout",
    "Run",
    "RunAttempt",
    "RunSample",
    "RunWait",
    "Sampling",
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
    "WorkerDrainOrder",
    "WorkerSession",
    "keep_ceilings",
    "metadata",
    "protect",
]

for _mapper in default_registry.mappers:
    # The first line of a class's docstring is the comment that `\d+` shows.
    metadata.tables[_mapper.class_.__tablename__].comment = (_mapper.class_.__doc__ or "").partition("\n")[0]
