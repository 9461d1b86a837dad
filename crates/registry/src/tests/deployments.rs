use super::*;
use crate::{Action, Difference, Permit, Permits};
use contract::{ApplicationId, AwsGrant, ByteSize, Name, S3Action, S3Grant};
use std::sync::{Barrier, Mutex};

#[test]
fn a_deployment_creates_updates_and_deletes() {
    let node = Node::new();
    let plan = node.deploy(SHOP, &[("resize", "one")]).unwrap();
    let change = &plan.changes[0];
    assert_eq!(
        (change.action, change.from, change.to),
        (Action::Create, None, Some(v(1)))
    );
    assert_eq!(node.runs("resize"), "one");
    assert_eq!(node.runs("shop.resize:1"), "one");

    let again = node.deploy(SHOP, &[("resize", "one")]).unwrap();
    assert!(again.is_unchanged());
    assert_eq!(
        (again.changes[0].action, again.revision),
        (Action::Unchanged, plan.revision)
    );

    let text = format!(
        "{SHOP}memory = \"128MiB\"\nenv = {{ LEVEL = \"3\" }}\n[function.crop]\nsource = \"crop.wasm\"\n"
    );
    let code = [("resize", "two"), ("crop", "cut")];
    let manifest = manifest(&text);
    let digests = code
        .map(|(function, code)| (name(function), digest(code.as_bytes())))
        .into();
    let planned = node.registry().plan(&manifest, &digests).unwrap();
    assert_eq!(
        planned.missing_code.len(),
        2,
        "a plan lists what must be uploaded"
    );
    assert_eq!(node.runs("resize"), "one", "a plan changes nothing");
    let plan = node.deploy(&text, &code).unwrap();
    assert_eq!(
        plan.changes, planned.changes,
        "a deployment does what was planned"
    );
    assert!(plan.revision > planned.revision);
    let [crop, resize] = &plan.changes[..] else {
        panic!("two functions")
    };
    assert_eq!((crop.action, crop.to), (Action::Create, Some(v(1))));
    assert_eq!(
        (resize.action, resize.from, resize.to),
        (Action::Update, Some(v(1)), Some(v(2)))
    );
    let difference = |key: &str, from: Option<&str>, to: Option<&str>| Difference {
        key: key.to_owned(),
        from: from.map(str::to_owned),
        to: to.map(str::to_owned),
    };
    let (one, two) = (digest(b"one").to_string(), digest(b"two").to_string());
    assert_eq!(
        resize.differences,
        [
            difference("code", Some(&one), Some(&two)),
            difference("env.LEVEL", None, Some("3")),
            difference("memory", Some("64MiB"), Some("128MiB")),
        ]
    );
    assert_eq!(node.runs("resize"), "two");
    assert_eq!(node.runs("resize:1"), "one", "an old version can be asked for");
    let snapshot = node.registry().snapshot();
    let grant = &snapshot.version(&parse("resize")).unwrap().grant;
    assert_eq!(grant.limits.memory, ByteSize::mib(128));
    assert_eq!(grant.environment, [("LEVEL".to_owned(), "3".to_owned())]);
    assert_eq!(
        (grant.function.to_string(), grant.version),
        ("shop.resize".to_owned(), v(2))
    );

    let plan = node.deploy(SHOP, &[("resize", "two")]).unwrap();
    assert_eq!(plan.changes[0].action, Action::Delete);
    assert!(matches!(
        node.registry().snapshot().version(&parse("crop")),
        Err(Error::UnknownFunction(_))
    ));
}

#[test]
fn source_and_build_are_no_settings() {
    let node = Node::new();
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    let moved =
        SHOP.replace("resize.wasm", "build/other.wasm") + "[function.resize.build]\ncommand = \"make\"\n";
    assert!(node.deploy(&moved, &[("resize", "one")]).unwrap().is_unchanged());
}

#[test]
fn routes_alone_are_a_change() {
    let node = Node::new();
    let first = node.deploy(SHOP, &[("resize", "one")]).unwrap();
    let text = format!("{SHOP}[[trigger.http]]\nfunction = \"resize\"\npath = \"/r\"\n");
    let plan = node.deploy(&text, &[("resize", "one")]).unwrap();
    assert!(plan.routes_change && plan.revision > first.revision);
    assert_eq!(
        node.registry()
            .snapshot()
            .application(&name("shop"))
            .unwrap()
            .triggers[0]
            .path,
        "/r"
    );
}

#[test]
fn schedules_and_subscriptions_alone_are_a_change() {
    let node = Node::with(Options {
        hears_objects: true,
        ..Options::default()
    });
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    let text = format!(
        "{SHOP}[[trigger.schedule]]\nfunction = \"resize\"\nevery = \"5m\"\n\
         [[trigger.cloudevents]]\nfunction = \"resize\"\ntype = \"a.*\"\n\
         [[trigger.object]]\nfunction = \"resize\"\nbucket = \"photos\"\n"
    );
    let plan = node.deploy(&text, &[("resize", "one")]).unwrap();
    assert!(plan.triggers_change && !plan.routes_change && !plan.is_unchanged());
    assert!(node.deploy(&text, &[("resize", "one")]).unwrap().is_unchanged());
    let shop = |registry: &Registry| registry.snapshot().application(&name("shop")).unwrap().clone();
    let kept = shop(node.registry());
    assert_eq!(kept.schedules[0].when(), "every 5m");
    assert_eq!(kept.subscriptions[0].kind, "a.*");
    assert_eq!(kept.objects[0].bucket, "photos");
    assert!(node.deploy(SHOP, &[("resize", "one")]).unwrap().triggers_change);
    assert!(shop(node.registry()).schedules.is_empty());
}

#[test]
fn what_a_manifest_names_is_a_demand_even_if_it_is_the_default() {
    let node = Node::new();
    node.deploy(SHOP, &[("resize", "uncounted")]).unwrap();
    let kept = || {
        let snapshot = node.registry().snapshot();
        snapshot.version(&parse("resize")).unwrap().tier().kept
    };
    assert_eq!(kept().unwrap(), "all but 1 cores");
    let named = format!("{SHOP}cpus = 1\n");
    let error = node.deploy(&named, &[("resize", "uncounted")]).unwrap_err();
    assert_eq!(error.problem().code, "limits-unavailable");
    assert_eq!(kept().unwrap(), "all but 1 cores", "what was there goes on");
    let keys = |plan: Plan| {
        let differences = plan.changes.into_iter().flat_map(|change| change.differences);
        differences.map(|difference| difference.key).collect::<Vec<_>>()
    };
    // Where the default is named, that is the difference; else the limit is.
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    assert_eq!(
        keys(node.deploy(&named, &[("resize", "one")]).unwrap()),
        ["demanded.cpus"]
    );
    let more = format!("{SHOP}cpus = 2\ncpu_time = \"1s\"\n");
    assert_eq!(
        keys(node.deploy(&more, &[("resize", "one")]).unwrap()),
        ["cpu_time", "cpus"]
    );
    assert_eq!(
        keys(node.deploy(SHOP, &[("resize", "one")]).unwrap()),
        ["cpu_time", "cpus"]
    );
}

#[test]
fn what_cannot_be_deployed_is_refused_and_changes_nothing() {
    let node = Node::new();
    let refused = |text: &str, code: &[(&str, &str)], problem: (u16, &str), says: &str| {
        let error = node.deploy(text, code).unwrap_err();
        let found = error.problem();
        assert_eq!((found.status, &*found.code), problem, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert!(node.registry().snapshot().applications.is_empty());
    };
    refused(
        SHOP,
        &[("resize", "malformed")],
        (422, "code-refused"),
        "shop.resize",
    );
    refused(SHOP, &[("resize", "poison")], (422, "code-refused"), "panicked");
    refused(SHOP, &[], (422, "code-map"), "resize");
    refused(
        SHOP,
        &[("resize", "one"), ("other", "x")],
        (422, "code-map"),
        "other",
    );
    let demanding = format!("{SHOP}cpus = 1\n");
    refused(
        &demanding,
        &[("resize", "uncounted")],
        (422, "limits-unavailable"),
        "this host counts no cores",
    );
    let grants = format!("{SHOP}[[function.resize.grants.http]]\nhost = \"example.org\"\n");
    refused(&grants, &[("resize", "one")], (422, "grants-unavailable"), "http");
    let objects = format!("{SHOP}[[trigger.object]]\nfunction = \"resize\"\nbucket = \"photos\"\n");
    let heard = (422, "trigger-unavailable");
    refused(&objects, &[("resize", "one")], heard, "shop.resize");

    let absent = digest(b"absent");
    let error = node
        .registry()
        .deploy(&manifest(SHOP), &BTreeMap::from([(name("resize"), absent)]))
        .unwrap_err();
    assert_eq!(error.problem().code, "code-missing");
    assert!(error.to_string().contains(&absent.to_string()));

    let mut invalid = manifest(SHOP);
    invalid.trigger.http.push(manifest::HttpTrigger {
        function: name("nobody"),
        path: "/".to_owned(),
        method: Vec::new(),
        host: None,
    });
    let code = BTreeMap::from([(name("resize"), node.put("one"))]);
    assert_eq!(
        node.registry()
            .deploy(&invalid, &code)
            .unwrap_err()
            .problem()
            .code,
        "manifest-invalid"
    );
}

#[test]
fn uploads_are_what_they_say() {
    let node = Node::with(Options {
        code: ByteSize(1000),
        ..Options::default()
    });
    let registry = node.registry();
    let right = digest(b"right");
    let wrong = registry.put_code(right, &mut &b"wrong"[..]).unwrap_err();
    assert!(matches!(wrong, Error::DigestMismatch { .. }), "{wrong}");
    assert_eq!(registry.put_code(right, &mut &b"right"[..]).unwrap(), Stored::New);
    assert_eq!(
        registry.put_code(right, &mut &b"right"[..]).unwrap(),
        Stored::Known
    );
    assert!(matches!(
        registry.put_code(right, &mut &b"wrong"[..]),
        Err(Error::DigestMismatch { .. })
    ));
    let large = vec![0; 1001];
    let error = registry.put_code(digest(&large), &mut &large[..]).unwrap_err();
    assert_eq!(error.problem().status, 413);
    registry.put_code(digest(&large[1..]), &mut &large[1..]).unwrap();
    let files = std::fs::read_dir(node.data().join("code")).unwrap().count();
    assert_eq!(files, 2, "what was refused leaves nothing behind");
}

#[test]
fn aliases_and_rollback() {
    let node = Node::new();
    let registry = node.registry();
    for code in ["one", "two", "three"] {
        node.deploy(SHOP, &[("resize", code)]).unwrap();
    }
    let resize = parse("resize");
    let rolled_back = |to| {
        let (function, from, to) = registry.rollback(&resize, to).unwrap();
        assert_eq!(function.to_string(), "shop.resize");
        (from, to)
    };
    assert_eq!(registry.set_alias(&resize, &name("blue"), v(1)).unwrap().1, None);
    assert_eq!(node.runs("resize:blue"), "one");
    assert_eq!(
        registry.set_alias(&resize, &name("blue"), v(2)).unwrap().1,
        Some(v(1))
    );
    assert!(matches!(
        registry.set_alias(&resize, &name("blue"), v(9)),
        Err(Error::UnknownVersion { .. })
    ));

    assert_eq!(rolled_back(None), (v(3), v(2)));
    assert_eq!(node.runs("resize"), "two");
    assert_eq!(rolled_back(None), (v(2), v(1)));
    assert!(matches!(
        registry.rollback(&resize, None),
        Err(Error::NoEarlierVersion { .. })
    ));
    assert_eq!(rolled_back(Some(v(3))), (v(1), v(3)));
    assert_eq!(node.runs("resize"), "three");

    assert_eq!(registry.delete_alias(&resize, &name("blue")).unwrap(), v(2));
    assert!(matches!(
        registry.delete_alias(&resize, &name("blue")),
        Err(Error::UnknownVersion { .. })
    ));
    assert!(matches!(
        registry.delete_alias(&resize, &name("live")),
        Err(Error::LiveAlias(_))
    ));
    assert!(matches!(
        registry.rollback(&parse("resize:1"), None),
        Err(Error::Unqualified(_))
    ));
    assert!(matches!(
        registry.rollback(&parse("nobody"), None),
        Err(Error::UnknownFunction(_))
    ));
}

#[test]
fn old_versions_make_place_but_aliased_ones_stay() {
    let node = Node::with(Options {
        keep: 3,
        ..Options::default()
    });
    for i in 1..=6 {
        node.deploy(SHOP, &[("resize", &format!("code {i}"))]).unwrap();
        if i == 1 {
            node.registry()
                .set_alias(&parse("resize"), &name("first"), v(1))
                .unwrap();
        }
    }
    let snapshot = node.registry().snapshot();
    let (_, function) = snapshot.function(&parse("resize")).unwrap();
    assert_eq!(
        function.versions.keys().copied().collect::<Vec<_>>(),
        [v(1), v(4), v(5), v(6)]
    );
    assert_eq!(node.runs("resize:first"), "code 1");
    assert!(matches!(
        snapshot.version(&parse("resize:2")),
        Err(Error::UnknownVersion { .. })
    ));
}

#[test]
fn version_numbers_are_never_used_twice() {
    let mut node = Node::new();
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    node.deploy(SHOP, &[("resize", "two")]).unwrap();
    node.registry().delete_function(&parse("resize")).unwrap();
    assert!(
        node.registry().snapshot().applications.is_empty(),
        "an application goes with its last function"
    );
    assert_eq!(
        node.deploy(SHOP, &[("resize", "one")]).unwrap().changes[0].to,
        Some(v(3))
    );
    node.registry().delete_application(&name("shop")).unwrap();
    assert!(matches!(
        node.registry().delete_application(&name("shop")),
        Err(Error::UnknownApplication(_))
    ));
    node.open().unwrap();
    assert_eq!(
        node.deploy(SHOP, &[("resize", "one")]).unwrap().changes[0].to,
        Some(v(4))
    );
}

#[test]
fn a_name_that_two_applications_have_needs_its_application() {
    let node = Node::new();
    node.deploy(SHOP, &[("resize", "shop")]).unwrap();
    node.deploy(&SHOP.replace("shop", "blog"), &[("resize", "blog")])
        .unwrap();
    let snapshot = node.registry().snapshot();
    let error = snapshot.version(&parse("resize")).unwrap_err();
    assert!(
        error.problem().hint.contains("blog.resize, shop.resize"),
        "{error}"
    );
    assert_eq!(node.runs("shop.resize"), "shop");
    assert_eq!(node.runs("blog.resize"), "blog");
}

#[test]
fn applications_do_not_take_each_others_routes() {
    let node = Node::new();
    let with = |application: &str, rest: &str| {
        let text = SHOP.replace("shop", application);
        format!("{text}[[trigger.http]]\nfunction = \"resize\"\n{rest}\n")
    };
    let deploy = |application, rest| node.deploy(&with(application, rest), &[("resize", "one")]);
    deploy("shop", "path = \"/r/{size}\"\nmethod = [\"GET\", \"POST\"]").unwrap();
    let error = deploy("blog", "path = \"/r/{other}\"\nmethod = \"POST\"").unwrap_err();
    assert_eq!(error.problem().code, "route-conflict");
    assert!(error.to_string().contains("application `shop`"), "{error}");
    for rest in [
        "path = \"/r/{other}\"\nmethod = \"PUT\"",
        "path = \"/r/{other}\"\nmethod = \"POST\"\nhost = \"example.org\"",
        "path = \"/r/{other}/x\"\nmethod = \"POST\"",
    ] {
        deploy("blog", rest).unwrap();
    }
    // An application may take its own again, and another's once it is free.
    deploy("shop", "path = \"/s\"\nmethod = \"POST\"").unwrap();
    deploy("blog", "path = \"/r/{other}\"\nmethod = \"POST\"").unwrap();
}

#[test]
fn of_conflicting_deployments_one_wins_and_the_others_say_so() {
    let node = Node::new();
    let (rounds, threads) = (5, 4);
    for round in 0..rounds {
        let barrier = Barrier::new(threads);
        let results: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads)
                .map(|thread| {
                    let (node, barrier) = (&node, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        let code = format!("{round}/{thread}");
                        (code.clone(), node.deploy(SHOP, &[("resize", &code)]))
                    })
                })
                .collect();
            running.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut won: Vec<_> = results
            .iter()
            .filter_map(|(code, plan)| Some((plan.as_ref().ok()?, code)))
            .collect();
        assert!(!won.is_empty());
        for (_, error) in &results {
            assert!(matches!(error, Ok(_) | Err(Error::Conflict(_))), "{error:?}");
        }
        won.sort_by_key(|(plan, _)| plan.revision);
        assert_eq!(
            &node.runs("resize"),
            won.last().unwrap().1,
            "the last to win is live"
        );
        for (plan, code) in won {
            assert_eq!(
                &node.runs(&format!("resize:{}", plan.changes[0].to.unwrap())),
                code
            );
        }
    }
}

#[test]
fn subscribers_see_every_state_before_the_change_returns() {
    let node = Node::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    let sink = Arc::clone(&seen);
    node.registry().subscribe(move |snapshot| {
        let live = snapshot.version(&parse("resize")).ok();
        sink.lock()
            .unwrap()
            .push(live.map(|version| (version.number, version.loaded().is_some())));
    });
    node.deploy(SHOP, &[("resize", "two")]).unwrap();
    node.registry().rollback(&parse("resize"), None).unwrap();
    node.registry().delete_function(&parse("resize")).unwrap();
    let expected = [Some((v(1), true)), Some((v(2), true)), Some((v(1), true)), None];
    assert_eq!(
        *seen.lock().unwrap(),
        expected,
        "and every version is ready when it goes live"
    );
}

#[test]
fn requests_under_way_keep_their_version_and_idle_images_go() {
    let node = Node::new();
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    let under_way = Arc::clone(node.registry().snapshot().version(&parse("resize")).unwrap());
    let image = Arc::downgrade(under_way.image().unwrap());
    node.deploy(SHOP, &[("resize", "two")]).unwrap();
    assert_eq!(code_of(under_way.loaded().unwrap(), &under_way.grant), "one");
    assert!(
        node.registry()
            .snapshot()
            .version(&parse("resize:1"))
            .unwrap()
            .loaded()
            .is_none()
    );
    drop(under_way);
    assert!(image.upgrade().is_none(), "nobody holds the old image any longer");
}

#[test]
fn a_tenants_applications_are_apart_and_the_nodes_own_keep_their_keys() {
    let mut node = Node::new();
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    let acme: Name = name("acme");
    let code = BTreeMap::from([(name("resize"), node.put("two"))]);
    let deploy = |registry: &Registry| registry.deploy_for(Some(&acme), &manifest(SHOP), &code, &|_| Ok(()));
    // The code is here, but not because this tenant has it.
    assert!(matches!(deploy(node.registry()), Err(Error::CodeMissing(_))));
    let digest = digest(b"two");
    for stored in [Stored::New, Stored::Known] {
        let upload = node
            .registry()
            .put_code_for(Some(&acme), digest, &mut "two".as_bytes());
        assert_eq!(upload.unwrap(), stored, "nobody is told what others have");
    }
    let refused = node
        .registry()
        .deploy_for(Some(&acme), &manifest(SHOP), &code, &|functions| {
            Err(Error::FunctionQuota { functions, limit: 0 })
        });
    assert!(matches!(refused, Err(Error::FunctionQuota { functions: 1, .. })));
    deploy(node.registry()).unwrap();
    for reopened in [false, true] {
        if reopened {
            node.open().unwrap();
        }
        assert_eq!(node.runs("resize"), "one");
        assert_eq!(node.runs("shop.resize:1"), "one");
        assert_eq!(node.runs("acme/resize"), "two");
        assert_eq!(node.runs("acme/shop.resize:live"), "two");
        let snapshot = node.registry().snapshot();
        let unknown = snapshot.version(&parse("acme/other.resize")).unwrap_err();
        assert_eq!(
            unknown.local().to_string(),
            "there is no function `other.resize` on this node"
        );
    }
    // Folders of earlier releases have these keys, and are read because they did not change.
    node.registry = None;
    let store = Embedded::open(&node.data().join("store.redb")).unwrap();
    let keys = |prefix: &str| -> Vec<_> {
        let entries = store.list(prefix).unwrap();
        entries.into_iter().map(|entry| entry.key).collect()
    };
    assert_eq!(
        keys("application/"),
        ["application/acme/shop", "application/shop"]
    );
    assert_eq!(keys("counter/"), ["counter/acme/shop", "counter/shop"]);
    assert_eq!(
        keys("version/"),
        ["version/acme/shop/resize/1", "version/shop/resize/1"]
    );
    drop(store);
    node.open().unwrap();
    node.registry().delete_application(&name("acme/shop")).unwrap();
    assert_eq!(node.runs("resize"), "one");
}

/// `acme` may have this of the objects below `acme/` in `photos`, and items of `orders`.
fn permitted(actions: &[S3Action]) -> Options {
    let permit = Permit {
        s3: vec![S3Grant {
            bucket: "photos".to_owned(),
            prefix: "acme/".to_owned(),
            actions: actions.to_vec(),
        }],
        aws: vec![AwsGrant {
            service: "dynamodb".to_owned(),
            actions: vec!["Get*".to_owned()],
            resources: vec!["orders".to_owned()],
        }],
    };
    Options {
        services: vec!["s3", "aws"],
        hears_objects: true,
        permits: Arc::new(Permits::new(BTreeMap::from([(name("acme"), permit)]))),
        ..Options::default()
    }
}

fn deploy_of(tenant: Option<&str>, registry: &Registry, text: &str) -> Result<Plan, Error> {
    let tenant: Option<Name> = tenant.map(name);
    let code = BTreeMap::from([(name("resize"), digest(b"one"))]);
    registry
        .put_code_for(tenant.as_ref(), digest(b"one"), &mut "one".as_bytes())
        .unwrap();
    registry.deploy_for(tenant.as_ref(), &manifest(text), &code, &|_| Ok(()))
}

fn granting(bucket: &str, prefix: &str, actions: &str) -> String {
    format!(
        "{SHOP}handler = \"app.handler\"\n[[function.resize.grants.s3]]\nbucket = \"{bucket}\"\nprefix = \"{prefix}\"\nactions = [{actions}]\n"
    )
}

fn operations(action: &str, table: &str) -> String {
    format!(
        "{SHOP}handler = \"app.handler\"\n[[function.resize.grants.aws]]\nservice = \"dynamodb\"\nactions = [\"{action}\"]\nresources = [\"{table}\"]\n"
    )
}

#[test]
fn grants_that_do_not_fit_together_are_refused() {
    let node = Node::with(Options {
        services: vec!["s3"],
        fits: Some(Arc::new(|grants: &[S3Grant]| match grants.len() {
            0..=1 => Ok(()),
            more => Err(format!("{more} are too many")),
        })),
        ..Options::default()
    });
    let one = granting("photos", "a/", "\"get\"");
    let two = format!(
        "{one}[[function.resize.grants.s3]]\nbucket = \"photos\"\nprefix = \"b/\"\nactions = [\"get\"]\n"
    );
    let refused = deploy_of(None, node.registry(), &two).unwrap_err();
    let (text, problem) = (refused.to_string(), refused.problem());
    assert_eq!((problem.status, &*problem.code), (422, "grants-unavailable"));
    assert!(
        text.contains("`shop.resize`") && text.contains("2 are too many"),
        "{text}"
    );
    assert!(
        problem.hint.contains("[[function.resize.grants.s3]]"),
        "{}",
        problem.hint
    );
    assert!(deploy_of(None, node.registry(), &one).is_ok());
}

fn hearing(text: &str, prefix: &str) -> String {
    format!("{text}[[trigger.object]]\nfunction = \"resize\"\nbucket = \"photos\"\nprefix = \"{prefix}\"\n")
}

#[test]
fn a_tenants_manifest_grants_what_the_operator_permits_and_no_more() {
    let node = Node::with(permitted(&[S3Action::Get, S3Action::List]));
    let both = "\"get\", \"list\"";
    let refused = [
        (
            granting("photos", "acme/in/", "\"get\", \"put\""),
            "get, put of s3://photos/acme/in/*",
        ),
        (granting("photos", "acm", both), "get, list of s3://photos/acm*"),
        (granting("sea", "acme/", both), "get, list of s3://sea/acme/*"),
        (operations("PutItem", "orders"), "PutItem of orders (dynamodb)"),
        (operations("GetItem", "*"), "GetItem of * (dynamodb)"),
        (hearing(SHOP, ""), "list of s3://photos/*, for a trigger"),
    ];
    for (text, asked) in &refused {
        let error = deploy_of(Some("acme"), node.registry(), text).unwrap_err();
        let problem = error.problem();
        assert_eq!(
            (problem.status, &*problem.code),
            (422, "not-permitted"),
            "{error}"
        );
        let said = error.to_string();
        let begins = format!("`acme/shop.resize` asks for {asked}, and the tenant `acme` may have ");
        assert!(said.starts_with(&begins), "{said}");
        assert!(
            said.ends_with("get, list of s3://photos/acme/*") || said.ends_with("Get* of orders (dynamodb)")
        );
        assert!(problem.hint.contains("[[tenant.acme."), "{}", problem.hint);
        assert!(node.registry().snapshot().applications.is_empty());
    }
    // Nor does code run with it that is not deployed.
    let code = BTreeMap::from([(name("resize"), digest(b"one"))]);
    for (text, _) in &refused {
        let once = node.registry().once(Some(&name("acme")), &manifest(text), &code);
        assert_eq!(once.unwrap_err().problem().code, "not-permitted");
    }
    let nothing = deploy_of(
        Some("rival"),
        node.registry(),
        &granting("photos", "acme/", "\"get\""),
    );
    let nothing = nothing.unwrap_err().to_string();
    assert!(
        nothing.ends_with("the tenant `rival` may have nothing of S3"),
        "{nothing}"
    );
    // The node's own applications need no permit.
    for (text, _) in &refused {
        deploy_of(None, node.registry(), text).unwrap();
    }
    for text in [
        granting("photos", "acme/", both),
        granting("photos", "acme/in/", "\"get\""),
        operations("GetItem", "orders"),
        hearing(&granting("photos", "acme/in/", "\"get\""), "acme/in/"),
    ] {
        deploy_of(Some("acme"), node.registry(), &text).unwrap();
    }
    let snapshot = node.registry().snapshot();
    let version = snapshot.version(&parse("acme/resize")).unwrap();
    assert_eq!(version.grant.s3, version.settings.s3);
    assert_eq!(version.grant.s3[0].prefix, "acme/in/");
}

#[test]
fn what_is_no_longer_permitted_is_withheld_from_the_next_start_on_and_comes_back_with_its_permit() {
    let mut node = Node::with(permitted(&[S3Action::Get, S3Action::List]));
    let reading = granting("photos", "acme/", "\"get\"");
    let both = format!(
        "{reading}[[function.resize.grants.s3]]\nbucket = \"photos\"\nprefix = \"acme/out/\"\nactions = [\"list\"]\n"
    );
    let text = hearing(&both, "acme/in/");
    deploy_of(Some("acme"), node.registry(), &text).unwrap();
    deploy_of(None, node.registry(), &text).unwrap();
    let granted = |node: &Node, of: &str| {
        let snapshot = node.registry().snapshot();
        let version = snapshot.version(&parse(of)).unwrap();
        assert_eq!(version.settings.s3.len(), 2, "what was deployed stays as it was");
        let prefixes = version.grant.s3.iter().map(|grant| grant.prefix.clone());
        prefixes.collect::<Vec<_>>()
    };
    let hears = |node: &Node, of: &str| {
        let snapshot = node.registry().snapshot();
        let id: ApplicationId = name(of);
        let application = &snapshot.applications[&id];
        assert_eq!(application.objects.len(), 1);
        node.registry().permits().lets_run(&id, &application.objects[0])
    };
    let (get, list) = (S3Action::Get, S3Action::List);
    for (actions, kept, is_heard) in [
        (vec![get, list], vec!["acme/", "acme/out/"], true),
        (vec![get], vec!["acme/"], false),
        (vec![], vec![], false),
        (vec![list], vec!["acme/out/"], true),
        (vec![get, list], vec!["acme/", "acme/out/"], true),
    ] {
        node.options = permitted(&actions);
        node.open().unwrap();
        assert_eq!(granted(&node, "acme/resize"), kept);
        assert_eq!(hears(&node, "acme/shop"), is_heard);
        assert_eq!(granted(&node, "resize"), ["acme/", "acme/out/"], "the node's own");
        assert!(hears(&node, "shop"));
        assert_eq!(node.runs("acme/resize"), "one", "it is served");
        // What else is changed brings nothing back, and takes nothing away.
        node.registry()
            .set_alias(&parse("acme/resize"), &name("blue"), v(1))
            .unwrap();
        assert_eq!(granted(&node, "acme/resize:blue"), kept);
        let again = deploy_of(Some("acme"), node.registry(), &text);
        match actions.len() {
            2 => assert!(again.unwrap().is_unchanged()),
            _ => assert_eq!(again.unwrap_err().problem().code, "not-permitted"),
        }
    }
}
