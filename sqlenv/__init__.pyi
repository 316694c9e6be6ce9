# the server, in this process
from env_server.app import create_app as create_app
from env_server.settings import Settings as Settings
from env_server.verifier import Gold as Gold
from env_server.verifier import judge_answer as judge_answer

# the client: no torch, no server
from shared.actions import ACTIONS as ACTIONS
from shared.actions import ActionType as ActionType
from shared.actions import SQLAction as SQLAction
from shared.agents.gym import SQLEnvGym as SQLEnvGym  # needs gymnasium
from shared.agents.openenv import SQLEnv as SQLEnv  # needs openenv
from shared.agents.texts import INSTRUCTIONS as INSTRUCTIONS
from shared.agents.texts import action_of as action_of
from shared.agents.texts import first_text as first_text
from shared.agents.texts import step_text as step_text
from shared.agents.tools import SQLEnvTools as SQLEnvTools
from shared.agents.tools import SQLEnvToolsFactory as SQLEnvToolsFactory
from shared.client import ClientLimits as ClientLimits
from shared.client import ClientStats as ClientStats
from shared.client import SQLEnvClient as SQLEnvClient
from shared.client import in_process as in_process
from shared.client.sync import SyncSQLEnvClient as SyncSQLEnvClient
from shared.console import one_line_errors as one_line_errors
from shared.errors import SQLEnvError as SQLEnvError
from shared.models import Outcome as Outcome
from shared.models import ResetResult as ResetResult
from shared.models import SQLObservation as SQLObservation
from shared.models import StepResult as StepResult

# the trainer
from trainer.config.settings import GRPOConfig as GRPOConfig
from trainer.grpo.build_trainer import build_trainer as build_trainer
from trainer.prompts import Prompt as Prompt
from trainer.prompts import prompt_of as prompt_of
from trainer.rollout import parse_model_output as parse_model_output
from trainer.rollout import rollout_func as rollout_func
from trainer.rollout.dataset import load_question_prompts as load_question_prompts
from trainer.rollout.loop import sample_random_baseline as sample_random_baseline
from trainer.rollout.prompts import format_observation as format_observation
from trainer.rollout.prompts import get_system_prompt as get_system_prompt
from trainer.rollout.rewards import reward_correctness as reward_correctness
from trainer.rollout.rewards import reward_operational as reward_operational
from trainer.rollout.rewards import reward_progress as reward_progress
from trainer.runtime.models import load_model_and_tokenizer as load_model_and_tokenizer
