//! The cases of `manager_test.go` of the Go kubelet, as far as they are decisions, and random histories.

use super::*;

fn claim(name: &str, drivers: &[&str]) -> AllocatedClaim {
    let id = ClaimId { namespace: "n".to_owned(), name: name.to_owned(), uid: format!("uid-{name}") };
    AllocatedClaim { id, drivers: drivers.iter().map(|driver| (*driver).to_owned()).collect() }
}

fn pod(name: &str) -> PodUid {
    PodUid::new(name)
}

/// `driver: claim claim`, or `busy`.
fn shown(begin: Begin) -> Vec<String> {
    let Begin::Ready(batches) = begin else { return vec!["busy".to_owned()] };
    let names = |claims: Vec<ClaimId>| claims.into_iter().map(|claim| claim.name).collect::<Vec<_>>();
    batches.into_iter().map(|(driver, claims)| format!("{driver}: {}", names(claims).join(" "))).collect()
}

fn begin(table: &mut ClaimTable, user: &str, claims: &[AllocatedClaim]) -> Vec<String> {
    shown(table.begin_prepare(&pod(user), claims).expect("no older claim"))
}

/// The driver has prepared the claims, one device each.
fn succeed(table: &mut ClaimTable, driver: &str, claims: &[AllocatedClaim]) {
    let asked: Vec<ClaimId> = claims.iter().map(|claim| claim.id.clone()).collect();
    let device = |claim: &ClaimId| ClaimDevice { name: claim.name.clone(), ..ClaimDevice::default() };
    let answers = asked.iter().map(|claim| (claim.uid.clone(), Ok(vec![device(claim)]))).collect();
    table.prepared(driver, &asked, answers).expect("success");
}

fn end(table: &mut ClaimTable, claims: &[AllocatedClaim]) {
    table.end_prepare(claims.iter().map(|claim| &claim.id));
}

fn unprepare(table: &mut ClaimTable, user: &str) -> Vec<String> {
    let begin = table.begin_unprepare(&pod(user));
    if let Begin::Ready(batches) = &begin {
        for (driver, asked) in batches {
            let answers = asked.iter().map(|claim| (claim.uid.clone(), Ok(()))).collect();
            table.unprepared(driver, asked, answers).expect("success");
        }
        table.end_unprepare(&pod(user));
    }
    shown(begin)
}

#[test]
fn claims_are_batched_by_driver() {
    let claims = [claim("a", &["x", "y"]), claim("b", &["x"]), claim("empty", &[])];
    let mut table = ClaimTable::default();
    assert_eq!(begin(&mut table, "p", &claims), ["x: a b", "y: a"]);
    assert_eq!(table.devices("n", "empty", None).map(|devices| devices.len()), Some(0));
    assert_eq!(table.devices("n", "other", None).map(|devices| devices.len()), None);
}

#[test]
fn failed_driver_is_called_again_and_those_that_succeeded_are_not() {
    let claims = [claim("a", &["x", "y"]), claim("b", &["x"])];
    let mut table = ClaimTable::default();
    begin(&mut table, "p", &claims);
    succeed(&mut table, "x", &claims);
    end(&mut table, &claims);
    assert_eq!(table.counts(), ([("x", 1)].into(), 1));
    assert_eq!(begin(&mut table, "p", &claims), ["y: a"]);
    succeed(&mut table, "y", &claims[..1]);
    end(&mut table, &claims);
    assert!(begin(&mut table, "p", &claims).is_empty());
    assert_eq!(table.counts(), ([("x", 2), ("y", 1)].into(), 2));
}

#[test]
fn claim_that_is_prepared_does_not_keep_others_of_the_pod_from_being_prepared() {
    let claims = [claim("a", &["x"]), claim("b", &["x"])];
    let mut table = ClaimTable::default();
    begin(&mut table, "p", &claims[..1]);
    succeed(&mut table, "x", &claims[..1]);
    end(&mut table, &claims[..1]);
    assert_eq!(begin(&mut table, "q", &claims), ["x: b"]);
}

#[test]
fn claim_is_never_prepared_or_unprepared_twice_at_once() {
    let claims = [claim("a", &["x"])];
    let mut table = ClaimTable::default();
    begin(&mut table, "p", &claims);
    assert_eq!(begin(&mut table, "q", &claims), ["busy"]);
    assert!(!table.is_used_by(&pod("q")));
    assert_eq!(unprepare(&mut table, "p"), ["busy"]);
    succeed(&mut table, "x", &claims);
    end(&mut table, &claims);
    table.begin_unprepare(&pod("p"));
    assert_eq!(begin(&mut table, "q", &claims), ["busy"]);
    table.end_unprepare(&pod("p"));
    assert_eq!(begin(&mut table, "q", &claims), ["x: a"], "the unprepare failed, and may have happened");
}

#[test]
fn shared_claim_is_unprepared_with_its_last_pod() {
    let claims = [claim("a", &["x"])];
    let mut table = ClaimTable::default();
    begin(&mut table, "p", &claims);
    succeed(&mut table, "x", &claims);
    end(&mut table, &claims);
    assert!(begin(&mut table, "q", &claims).is_empty());
    assert!(unprepare(&mut table, "p").is_empty());
    assert_eq!(table.devices("n", "a", None).map(|devices| devices.len()), Some(1));
    assert_eq!(unprepare(&mut table, "q"), ["x: a"]);
    assert!(table.is_empty());
}

#[test]
fn claim_stays_until_every_driver_has_unprepared_it() {
    let claims = [claim("a", &["x", "y"])];
    let mut table = ClaimTable::default();
    begin(&mut table, "p", &claims);
    succeed(&mut table, "x", &claims);
    end(&mut table, &claims);
    assert_eq!(shown(table.begin_unprepare(&pod("p"))), ["x: a", "y: a"], "y may have prepared it");
    let asked = [claims[0].id.clone()];
    table.unprepared("x", &asked, [("uid-a".to_owned(), Ok(()))].into()).expect("success");
    let failed = table.unprepared("y", &asked, [("uid-a".to_owned(), Err("busy".to_owned()))].into());
    assert_eq!(
        failed.map_err(|error| error.to_string()),
        Err("NodeUnprepareResources failed for ResourceClaim a: busy".to_owned())
    );
    table.end_unprepare(&pod("p"));
    assert!(table.is_used_by(&pod("p")));
    assert_eq!(unprepare(&mut table, "p"), ["y: a"]);
    assert!(table.is_empty());
}

#[test]
fn claim_of_the_same_name_with_another_uid_waits_for_the_old_one() {
    let old = [claim("a", &["x"])];
    let mut new = old.clone();
    new[0].id.uid = "new".to_owned();
    let mut table = ClaimTable::default();
    begin(&mut table, "p", &old);
    end(&mut table, &old);
    let expected = "old ResourceClaim with same name a and different UID uid-a still exists (previous pod force-deleted?!)";
    let refused = table.begin_prepare(&pod("q"), &new);
    assert_eq!(refused.map_err(|error| error.to_string()), Err(expected.to_owned()));
    unprepare(&mut table, "p");
    assert_eq!(begin(&mut table, "q", &new), ["x: a"]);
}

#[test]
fn claim_whose_device_the_runtime_does_not_find_is_prepared_again_once() {
    let claims = [claim("a", &["x"])];
    let mut table = ClaimTable::default();
    begin(&mut table, "p", &claims);
    succeed(&mut table, "x", &claims);
    end(&mut table, &claims);
    table.set_unresolved(&pod("p"));
    assert!(table.is_unresolved(&pod("p")) && !table.is_unresolved(&pod("q")));
    assert_eq!(begin(&mut table, "p", &claims), ["x: a"]);
    succeed(&mut table, "x", &claims);
    end(&mut table, &claims);
    assert!(!table.is_unresolved(&pod("p")));
    assert!(begin(&mut table, "p", &claims).is_empty());
}

#[test]
fn answers_about_unknown_failed_and_missing_claims_are_errors_and_successes_count() {
    let claims = [claim("a", &["x"]), claim("b", &["x"])];
    let asked: Vec<ClaimId> = claims.iter().map(|claim| claim.id.clone()).collect();
    let answer = |answers: Vec<(&str, Result<Vec<ClaimDevice>, String>)>| {
        let mut table = ClaimTable::default();
        begin(&mut table, "p", &claims);
        let answers = answers.into_iter().map(|(uid, answer)| (uid.to_owned(), answer)).collect();
        let checked = table.prepared("x", &asked, answers).map_err(|error| error.to_string());
        (checked, table.counts().1)
    };
    let failed = Err("NodePrepareResources failed for ResourceClaim b: no".to_owned());
    assert_eq!(answer(vec![("uid-a", Ok(vec![])), ("uid-b", Err("no".to_owned()))]), (failed, 1));
    let unknown = Err("NodePrepareResources returned result for unknown claim UID c".to_owned());
    assert_eq!(answer(vec![("uid-a", Ok(vec![])), ("uid-b", Ok(vec![])), ("c", Ok(vec![]))]), (unknown, 2));
    assert_eq!(answer(vec![]), (Err("NodePrepareResources skipped 2 ResourceClaims".to_owned()), 0));
    assert_eq!(answer(vec![("uid-a", Ok(vec![])), ("uid-b", Ok(vec![]))]), (Ok(()), 2));
}
