//! What tenants may be granted. The operator says it in the node's configuration, and it is the same until the node ends: what a tenant's manifest grants is
//! compared with it at the deployment, and what was deployed before with each start.

use crate::Error;
use contract::{ApplicationId, AwsGrant, FunctionId, Grant, Name, S3Action, S3Grant};
use manifest::ObjectTrigger;
use std::{collections::BTreeMap, fmt};

/// What one tenant's functions may be granted. Each of their grants lies within one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permit {
    /// Objects in S3.
    pub s3: Vec<S3Grant>,
    /// Operations of AWS's other services.
    pub aws: Vec<AwsGrant>,
}

/// The permits of all tenants; who has none may be granted nothing of this. The node's own applications need none.
#[derive(Clone, Debug, Default)]
pub struct Permits(BTreeMap<Name, Permit>);

/// Something that was asked for beyond a permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// `s3` or `aws`: under which key the operator would permit it.
    pub key: &'static str,
    /// What was asked for.
    pub asked: String,
    /// All that there is of its kind.
    pub permitted: String,
}

static NOTHING: Permit = Permit {
    s3: Vec::new(),
    aws: Vec::new(),
};

impl Permits {
    /// By tenant.
    pub fn new(permits: BTreeMap<Name, Permit>) -> Self {
        Self(permits)
    }

    /// A tenant's.
    pub fn of(&self, tenant: &Name) -> &Permit {
        self.0.get(tenant).unwrap_or(&NOTHING)
    }

    /// Whether a function may be granted this.
    pub(crate) fn check(
        &self,
        function: impl Fn() -> FunctionId,
        tenant: Option<&Name>,
        (s3, aws): (&[S3Grant], &[AwsGrant]),
    ) -> Result<(), Error> {
        let Some(tenant) = tenant else { return Ok(()) };
        let permit = self.of(tenant);
        let beyond = s3.iter().find_map(|asked| permit.beyond_objects(asked));
        let beyond = beyond.or_else(|| aws.iter().find_map(|asked| permit.beyond_operations(asked)));
        match beyond {
            Some(beyond) => Err(Error::NotPermitted {
                function: function(),
                tenant: tenant.clone(),
                beyond: Box::new(beyond),
            }),
            None => Ok(()),
        }
    }

    /// Whether these may be the triggers of an application.
    pub(crate) fn check_triggers(
        &self,
        application: &ApplicationId,
        triggers: &[ObjectTrigger],
    ) -> Result<(), Error> {
        let beyond = triggers
            .iter()
            .find_map(|trigger| Some((trigger, self.beyond_trigger(application, trigger)?)));
        match (beyond, &application.tenant) {
            (Some((trigger, beyond)), Some(tenant)) => Err(Error::NotPermitted {
                function: FunctionId {
                    application: application.clone(),
                    function: trigger.function.clone(),
                },
                tenant: tenant.clone(),
                beyond: Box::new(Beyond {
                    asked: format!("{}, for a trigger", beyond.asked),
                    ..beyond
                }),
            }),
            _ => Ok(()),
        }
    }

    /// Whether a trigger of an application may make a function run.
    pub fn lets_run(&self, application: &ApplicationId, trigger: &ObjectTrigger) -> bool {
        self.beyond_trigger(application, trigger).is_none()
    }

    /// An event says of an object what a list says: its key, its size, its ETag.
    fn beyond_trigger(&self, application: &ApplicationId, trigger: &ObjectTrigger) -> Option<Beyond> {
        let permit = self.of(application.tenant.as_ref()?);
        permit.beyond_objects(&S3Grant {
            bucket: trigger.bucket.clone(),
            prefix: trigger.prefix.clone(),
            actions: vec![S3Action::List],
        })
    }

    /// Takes out of a grant what its function's tenant may not have, and gives that.
    pub(crate) fn withhold(&self, grant: &mut Grant) -> Vec<Beyond> {
        let Some(tenant) = grant.function.tenant() else {
            return Vec::new();
        };
        let (permit, mut withheld) = (self.of(tenant), Vec::new());
        let mut keep = |beyond: Option<Beyond>| {
            let is_kept = beyond.is_none();
            withheld.extend(beyond);
            is_kept
        };
        grant.s3.retain(|asked| keep(permit.beyond_objects(asked)));
        grant.aws.retain(|asked| keep(permit.beyond_operations(asked)));
        withheld
    }
}

impl Permit {
    /// In words, one for each.
    pub fn told(&self) -> impl Iterator<Item = String> {
        let objects = self.s3.iter().map(objects);
        objects.chain(self.aws.iter().map(operations))
    }

    fn beyond_objects(&self, asked: &S3Grant) -> Option<Beyond> {
        let is_covered = self.s3.iter().any(|permitted| permitted.covers(asked));
        (!is_covered).then(|| Beyond {
            key: "s3",
            asked: objects(asked),
            permitted: all(self.s3.iter().map(objects), "S3"),
        })
    }

    fn beyond_operations(&self, asked: &AwsGrant) -> Option<Beyond> {
        let is_of_it = |permitted: &&AwsGrant| permitted.service == asked.service;
        let is_covered = self.aws.iter().any(|permitted| permitted.covers(asked));
        (!is_covered).then(|| Beyond {
            key: "aws",
            asked: operations(asked),
            permitted: all(self.aws.iter().filter(is_of_it).map(operations), &asked.service),
        })
    }
}

impl fmt::Display for Beyond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.asked)
    }
}

fn objects(grant: &S3Grant) -> String {
    let names = grant.actions.iter().map(|action| match action {
        S3Action::Get => "get",
        S3Action::Put => "put",
        S3Action::List => "list",
        S3Action::Delete => "delete",
    });
    let names: Vec<_> = names.collect();
    format!("{} of s3://{}/{}*", names.join(", "), grant.bucket, grant.prefix)
}

fn operations(grant: &AwsGrant) -> String {
    let (actions, resources) = (grant.actions.join(", "), grant.resources.join(", "));
    format!("{actions} of {resources} ({})", grant.service)
}

fn all(permitted: impl Iterator<Item = String>, kind: &str) -> String {
    let permitted: Vec<_> = permitted.collect();
    match permitted.is_empty() {
        true => format!("nothing of {kind}"),
        false => permitted.join("; "),
    }
}
