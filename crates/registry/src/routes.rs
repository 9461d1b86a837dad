//! Routes of different applications of one tenant must not answer the same requests.

use crate::Error;
use contract::ApplicationId;
use manifest::HttpTrigger;
use std::collections::HashMap;

type Tables<'a> = HashMap<(Option<&'a str>, Option<&'a str>), matchit::Router<()>>;

/// The hosts and methods in whose tables a route stands, as the dispatcher looks them up.
fn tables(trigger: &HttpTrigger) -> impl Iterator<Item = (Option<&str>, Option<&str>)> {
    let host = trigger.host.as_deref();
    let any = trigger.method.is_empty().then_some(None);
    any.into_iter()
        .chain(trigger.method.iter().map(|method| Some(method.as_str())))
        .map(move |method| (host, method))
}

fn said(trigger: &HttpTrigger) -> String {
    let method = if trigger.method.is_empty() {
        "any method".to_owned()
    } else {
        trigger.method.join(", ")
    };
    format!(
        "{method} {}{}",
        trigger.host.as_deref().unwrap_or_default(),
        trigger.path
    )
}

/// Checks the routes that an application wants against those of all others of its tenant.
pub(crate) fn check<'a>(
    wanted: &'a [HttpTrigger],
    others: impl Iterator<Item = (&'a ApplicationId, &'a [HttpTrigger])> + Clone,
) -> Result<(), Error> {
    let mut taken: Tables<'_> = HashMap::new();
    for trigger in others.clone().flat_map(|(_, triggers)| triggers) {
        for table in tables(trigger) {
            // They were checked against each other when they came.
            let _ = taken.entry(table).or_default().insert(trigger.path.as_str(), ());
        }
    }
    for trigger in wanted {
        for table in tables(trigger) {
            let Some(Err(matchit::InsertError::Conflict { with })) = taken
                .get_mut(&table)
                .map(|routes| routes.insert(trigger.path.as_str(), ()))
            else {
                continue;
            };
            let rival =
                |other: &&HttpTrigger| other.path == with && tables(other).any(|other| other == table);
            let found = others
                .clone()
                .find_map(|(application, triggers)| Some((application, triggers.iter().find(rival)?)));
            // A pattern of this application's own that was just added: the manifest's rules have told them apart.
            let Some((application, other)) = found else {
                continue;
            };
            return Err(Error::RouteConflict {
                route: said(trigger),
                other: said(other),
                application: application.clone(),
            });
        }
    }
    Ok(())
}
