//! The model: sorting, filtering, freezing and stepping, without a screen.

use super::*;
use crate::top::picture::Picture;
use crate::workloads::Standing;
use ebb_policy::snapshot::WorkloadKind;

fn line(name: &str, place: Option<u32>, memory: Option<u64>, growth: Option<i64>) -> Line {
    Line {
        key: WorkloadKey { name: name.to_owned(), ..WorkloadKey::default() },
        kind: WorkloadKind::Cgroup,
        cgroup: Some(name.to_owned()),
        memory,
        growth,
        stall: None,
        priority: None,
        standing: if place.is_some() { Standing::Candidate } else { Standing::Protected },
        place,
        reason: String::new(),
        keys: String::new(),
    }
}

fn picture(lines: &[Line]) -> Picture {
    Picture { workloads: lines.to_vec(), ..Picture::default() }
}

fn four() -> Model {
    Model::live(picture(&[
        line("/apps/Web", Some(1), Some(10), None),
        line("/apps/batch", Some(2), Some(30), Some(-5)),
        line("/system/db", None, Some(20), Some(7)),
        line("/system/new", None, None, None),
    ]))
}

fn names(model: &Model) -> Vec<String> {
    model.rows().into_iter().map(|row| row.label).collect()
}

fn press(model: &mut Model, actions: &[Action]) {
    for action in actions {
        assert_eq!(model.act(*action), Flow::Continue);
    }
}

fn types(model: &mut Model, text: &str) {
    press(model, &[Action::Filter]);
    text.chars().for_each(|c| press(model, &[Action::Char(c)]));
}

#[test]
fn each_order_begins_with_the_most_and_what_is_unknown_comes_last() {
    let mut model = four();
    assert_eq!(names(&model), ["/apps/Web", "/apps/batch", "/system/db", "/system/new"]);
    press(&mut model, &[Action::Sort]);
    assert_eq!(names(&model), ["/apps/batch", "/system/db", "/apps/Web", "/system/new"]);
    press(&mut model, &[Action::Sort]);
    assert_eq!(model.sort, Sort::Growth);
    assert_eq!(names(&model), ["/system/db", "/apps/batch", "/apps/Web", "/system/new"]);
    press(&mut model, &[Action::Sort, Action::Sort]);
    assert_eq!(names(&model), ["/apps/Web", "/apps/batch", "/system/db", "/system/new"]);
    press(&mut model, &[Action::Sort]);
    assert_eq!(model.sort, Sort::Rank);
}

#[test]
fn a_filter_goes_by_the_name_in_any_case_and_can_be_kept_or_dropped() {
    let mut model = four();
    types(&mut model, "WEB");
    assert_eq!(names(&model), ["/apps/Web"]);
    press(&mut model, &[Action::Accept]);
    assert_eq!((names(&model).len(), &model.focus), (1, &Focus::List));
    press(&mut model, &[Action::Filter, Action::Erase, Action::Erase, Action::Erase]);
    assert_eq!(names(&model).len(), 4);
    types(&mut model, "none");
    assert!(names(&model).is_empty());
    press(&mut model, &[Action::Cancel]);
    assert_eq!(names(&model).len(), 4);
}

#[test]
fn what_is_frozen_stays_while_the_agent_goes_on_and_is_gone_when_it_ends() {
    let mut model = four();
    press(&mut model, &[Action::Freeze]);
    model.take(Update::Picture(Box::new(picture(&[line("/late", Some(1), None, None)]))));
    model.take(Update::Record("late".to_owned()));
    assert_eq!((names(&model).len(), model.records().len()), (4, 0));
    press(&mut model, &[Action::Freeze]);
    assert_eq!((names(&model), model.records().len()), (vec!["/late".to_owned()], 1));
}

#[test]
fn what_is_selected_is_on_the_screen_whatever_happens_to_the_list() {
    let mut model = four();
    model.fit(2);
    let place = |model: &Model| (model.selected(), model.offset);
    press(&mut model, &[Action::Down]);
    assert_eq!(place(&model), (1, 0));
    press(&mut model, &[Action::Down]);
    assert_eq!(place(&model), (2, 1));
    press(&mut model, &[Action::Up]);
    assert_eq!(place(&model), (1, 1), "the list does not move before it has to");
    press(&mut model, &[Action::Last, Action::PageDown]);
    assert_eq!(place(&model), (3, 2));
    model.take(Update::Picture(Box::new(picture(&[line("/one", Some(1), None, None)]))));
    assert_eq!(place(&model), (0, 0));
    model.take(Update::Picture(Box::default()));
    press(&mut model, &[Action::Down, Action::Accept]);
    assert_eq!((place(&model), &model.focus), ((0, 0), &Focus::List));
}

#[test]
fn what_was_selected_stays_selected_where_it_stands_now() {
    let mut model = four();
    model.fit(4);
    let told = |names: [&str; 3]| {
        let place = |nth: usize| u32::try_from(nth + 1).ok();
        let lines = names.iter().enumerate().map(|(n, name)| line(name, place(n), None, None));
        Update::Picture(Box::new(picture(&lines.collect::<Vec<_>>())))
    };
    press(&mut model, &[Action::Down]);
    model.take(told(["/apps/Web", "/system/db", "/apps/batch"]));
    assert_eq!(model.selected(), 2);
    model.take(told(["/apps/batch", "/system/db", "/apps/Web"]));
    assert_eq!(model.selected(), 0);
    // Whoever has come first is watched there.
    model.take(told(["/system/db", "/apps/Web", "/apps/batch"]));
    assert_eq!(model.selected(), 0);
    press(&mut model, &[Action::Down]);
    model.take(told(["/system/db", "/apps/batch", "/system/new"]));
    assert_eq!(model.selected(), 1, "one that is gone leaves its row");
}

#[test]
fn an_agent_that_is_gone_is_gone_since_it_was_first_missed() {
    let mut model = four();
    model.take(Update::Lost(7, "first".to_owned()));
    model.take(Update::Lost(9, "again".to_owned()));
    let Origin::Agent(link) = &model.origin else { panic!("it is an agent's") };
    assert_eq!(*link, Link::Lost { since: 7, why: "again".to_owned() });
    assert_eq!(names(&model).len(), 4, "what was known of it last stays");
    model.take(Update::Picture(Box::default()));
    assert!(matches!(model.origin, Origin::Agent(Link::Up)));
}

#[test]
fn a_record_is_stepped_through_and_not_left_at_its_ends() {
    let step = |name: &str| Step {
        picture: picture(&[line(name, Some(1), None, None)]),
        records: vec![name.to_owned()],
    };
    let mut model = Model::recorded(vec![step("/a"), step("/b")]).unwrap();
    let at = |model: &Model| (names(model), model.records().clone());
    press(&mut model, &[Action::Earlier]);
    assert_eq!(names(&model), ["/a"]);
    press(&mut model, &[Action::Later, Action::Later]);
    assert_eq!(at(&model), (vec!["/b".to_owned()], ["/b".to_owned()].into()));
    assert!(Model::recorded(Vec::new()).is_none());
}

#[test]
fn details_are_of_the_workload_that_was_selected() {
    let mut model = four();
    press(&mut model, &[Action::Down, Action::Accept]);
    let Focus::Details(key) = &model.focus else { panic!("{:?}", model.focus) };
    assert_eq!(key.name, "/apps/batch");
    press(&mut model, &[Action::Cancel]);
    assert_eq!(model.focus, Focus::List);
}
