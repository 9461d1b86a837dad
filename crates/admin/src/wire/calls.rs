//! Asynchronous calls.

use super::times::moment;
use contract::{FunctionRef, RequestId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Asynchronous calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Calls {
    /// In the order of their ids.
    pub calls: Vec<Call>,
    /// If there are more: what to give as `after` for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub next: Option<RequestId>,
}

/// An asynchronous call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Call {
    /// Its `X-Call-Id`.
    #[schema(value_type = String, example = "60c820b3de8759560000000000000003")]
    pub id: RequestId,
    /// The function, as it was named.
    #[schema(value_type = String, example = "shop.resize")]
    pub function: FunctionRef,
    /// Where it is in its life.
    pub state: CallState,
    /// When it was accepted.
    #[schema(format = DateTime)]
    pub accepted: String,
    /// Attempts that were begun.
    pub attempts: u32,
    /// When the next attempt is due, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub due: Option<String>,
    /// When it succeeded or became a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub ended: Option<String>,
    /// The status that the function answered with, if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it is a dead letter, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<CallCause>,
    /// Why its last attempt failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How its outcome is told, if somebody wants to hear of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// The call whose outcome it tells, if it is a callback itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub callback_of: Option<RequestId>,
    /// Whom its outcome is told; of a callback, whom it tells. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
}

/// How the outcome of a call is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Callback {
    /// The call that tells it. Absent before there is an outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub id: Option<RequestId>,
    /// Where that call is in its life. Absent when it is not kept any more, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<CallState>,
}

/// Where a call is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallState {
    /// On its way to the disk; not accepted yet.
    Accepting,
    /// It is run when it is due.
    Waiting,
    /// An attempt is under way.
    Running,
    /// It has a result.
    Succeeded,
    /// A dead letter.
    Dead,
}

/// Why a call is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallCause {
    /// It failed as often as it may.
    Attempts,
    /// It became too old.
    Age,
    /// It failed in a way that no other attempt would change.
    Final,
    /// The node ended during too many attempts one after the other.
    Interrupted,
}

impl From<calls::Call> for Call {
    fn from(call: calls::Call) -> Self {
        let mut one = Self {
            id: call.id.0,
            function: call.function,
            state: call.state.into(),
            accepted: moment(call.accepted),
            attempts: call.begun,
            due: None,
            ended: None,
            status: None,
            cause: None,
            reason: call.reason,
            callback: call.callback.map(|telling| Callback {
                id: telling.id.map(|id| id.0),
                state: telling.state.map(CallState::from),
            }),
            callback_of: call.tells.map(|id| id.0),
            callback_url: None,
        };
        match call.state {
            calls::State::Accepting | calls::State::Running => {}
            calls::State::Waiting { due } => one.due = Some(moment(due)),
            calls::State::Succeeded { at, status } => {
                one.ended = Some(moment(at));
                one.status = Some(status);
            }
            calls::State::Dead { at, cause } => {
                one.ended = Some(moment(at));
                one.cause = Some(cause.into());
            }
        }
        one
    }
}

impl From<calls::State> for CallState {
    fn from(state: calls::State) -> Self {
        match state {
            calls::State::Accepting => Self::Accepting,
            calls::State::Waiting { .. } => Self::Waiting,
            calls::State::Running => Self::Running,
            calls::State::Succeeded { .. } => Self::Succeeded,
            calls::State::Dead { .. } => Self::Dead,
        }
    }
}

impl From<calls::Cause> for CallCause {
    fn from(cause: calls::Cause) -> Self {
        match cause {
            calls::Cause::Attempts => Self::Attempts,
            calls::Cause::Age => Self::Age,
            calls::Cause::Final => Self::Final,
            calls::Cause::Interrupted => Self::Interrupted,
        }
    }
}
