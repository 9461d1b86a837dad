//! What makes functions run.

use contract::Name;
use manifest::{CloudEventsTrigger, HttpTrigger, Missed, ObjectTrigger, ScheduleTrigger};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A route of the data plane, as in `[[trigger.http]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Route {
    /// The function that answers.
    #[schema(value_type = String, example = "resize")]
    pub function: Name,
    /// Path pattern.
    #[schema(example = "/resize/{size}")]
    pub path: String,
    /// Methods that match; any, when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub method: Vec<String>,
    /// The host that matches; any, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// A schedule, as in `[[trigger.schedule]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// The function that runs.
    #[schema(value_type = String, example = "report")]
    pub function: Name,
    /// When it is due: a cron expression with its time zone unless that is UTC, or `every` and an interval.
    #[schema(example = "0 2 * * MON Europe/Berlin")]
    pub when: String,
    /// What is done about missed runs: `skip`, `once` or `all`.
    #[schema(example = "once")]
    pub missed: String,
    /// Whether it runs.
    pub enabled: bool,
    /// When it will be due next, where a function is described.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub next: Option<String>,
}

/// Events that a function wants, as in `[[trigger.cloudevents]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Subscription {
    /// The function that runs.
    #[schema(value_type = String, example = "bill")]
    pub function: Name,
    /// Their type, or how it begins and `*`.
    #[schema(example = "com.example.order.*")]
    pub r#type: String,
    /// Their source, in the same way; any, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// New objects that a function wants, as in `[[trigger.object]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObjectSubscription {
    /// The function that runs.
    #[schema(value_type = String, example = "thumbnail")]
    pub function: Name,
    /// Their bucket.
    #[schema(example = "photos")]
    pub bucket: String,
    /// What their keys begin with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(example = "incoming/")]
    pub prefix: String,
    /// What their keys end with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(example = ".jpg")]
    pub suffix: String,
}

impl From<&HttpTrigger> for Route {
    fn from(trigger: &HttpTrigger) -> Self {
        Self {
            function: trigger.function.clone(),
            path: trigger.path.clone(),
            method: trigger.method.clone(),
            host: trigger.host.clone(),
        }
    }
}

impl From<&ScheduleTrigger> for Schedule {
    fn from(trigger: &ScheduleTrigger) -> Self {
        let missed = match trigger.missed {
            Missed::Skip => "skip",
            Missed::Once => "once",
            Missed::All => "all",
        };
        Self {
            function: trigger.function.clone(),
            when: trigger.when(),
            missed: missed.to_owned(),
            enabled: trigger.enabled,
            next: None,
        }
    }
}

impl From<&CloudEventsTrigger> for Subscription {
    fn from(trigger: &CloudEventsTrigger) -> Self {
        Self {
            function: trigger.function.clone(),
            r#type: trigger.kind.clone(),
            source: trigger.source.clone(),
        }
    }
}

impl From<&ObjectTrigger> for ObjectSubscription {
    fn from(trigger: &ObjectTrigger) -> Self {
        Self {
            function: trigger.function.clone(),
            bucket: trigger.bucket.clone(),
            prefix: trigger.prefix.clone(),
            suffix: trigger.suffix.clone(),
        }
    }
}
