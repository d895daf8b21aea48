//! The protocol only grows: what clients were once promised stands in `api/proto/promised.txt`, and all of it still holds.
//!
//! `EBB_BLESS=1` adds what is new to that file. It takes nothing away: a line that is gone from the protocol stays an error.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use ebb_api::wire::DESCRIPTORS;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("proto/promised.txt")
}

/// The protocol as lines, each a promise of its own.
fn promises(descriptors: &[u8]) -> BTreeSet<String> {
    let set = FileDescriptorSet::decode(descriptors).unwrap();
    let mut lines = BTreeSet::new();
    for file in &set.file {
        let package = file.package();
        file.message_type.iter().for_each(|message| of_message(package, message, &mut lines));
        file.enum_type.iter().for_each(|values| of_enum(package, values, &mut lines));
        file.service.iter().for_each(|service| of_service(package, service, &mut lines));
    }
    lines
}

fn of_message(within: &str, message: &DescriptorProto, lines: &mut BTreeSet<String>) {
    let name = format!("{within}.{}", message.name());
    lines.insert(format!("message {name}"));
    for field in &message.field {
        lines.insert(format!(
            "field {name}.{} = {}: {}",
            field.name(),
            field.number(),
            kind(message, field)
        ));
    }
    message.nested_type.iter().for_each(|nested| of_message(&name, nested, lines));
    message.enum_type.iter().for_each(|values| of_enum(&name, values, lines));
}

fn kind(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let kind = match field.r#type() {
        Type::Message | Type::Enum => field.type_name().to_owned(),
        scalar => format!("{scalar:?}").to_lowercase(),
    };
    let one_of = || {
        let at = usize::try_from(field.oneof_index()).unwrap();
        message.oneof_decl[at].name().to_owned()
    };
    match field.label() {
        Label::Repeated => format!("repeated {kind}"),
        _ if field.proto3_optional() => format!("optional {kind}"),
        _ if field.oneof_index.is_some() => format!("{kind} in oneof {}", one_of()),
        _ => kind,
    }
}

fn of_enum(within: &str, values: &EnumDescriptorProto, lines: &mut BTreeSet<String>) {
    for value in &values.value {
        let name = format!("{within}.{}", values.name());
        lines.insert(format!("value {name}.{} = {}", value.name(), value.number()));
    }
}

fn of_service(within: &str, service: &ServiceDescriptorProto, lines: &mut BTreeSet<String>) {
    for method in &service.method {
        let stream = |is_stream| if is_stream { "stream " } else { "" };
        lines.insert(format!(
            "call {within}.{}/{}({}{}) -> {}{}",
            service.name(),
            method.name(),
            stream(method.client_streaming()),
            method.input_type(),
            stream(method.server_streaming()),
            method.output_type(),
        ));
    }
}

/// Promises that do not hold any more.
fn broken<'a>(promised: &'a str, now: &BTreeSet<String>) -> Vec<&'a str> {
    promised.lines().filter(|line| !now.contains(*line)).collect()
}

#[test]
fn nothing_that_clients_were_promised_is_gone_or_another() {
    let now = promises(DESCRIPTORS);
    let promised = std::fs::read_to_string(file()).unwrap_or_default();
    let broken = broken(&promised, &now);
    assert!(broken.is_empty(), "clients rely on these: {broken:#?}");
    let all: Vec<&str> = now.iter().map(String::as_str).collect();
    let text = all.join("\n") + "\n";
    if std::env::var_os("EBB_BLESS").is_some() {
        std::fs::write(file(), &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(file()).unwrap() == text,
        "the protocol has grown: EBB_BLESS=1 cargo test -p ebb-api --test compatibility promises that too"
    );
}

/// What each kind of change looks like to the test above.
#[test]
fn what_is_removed_renamed_renumbered_or_of_another_type_is_found() {
    let change = |change: &dyn Fn(&mut prost_types::FileDescriptorProto)| {
        let mut set = FileDescriptorSet::decode(DESCRIPTORS).unwrap();
        change(&mut set.file[0]);
        let promised: Vec<String> = promises(DESCRIPTORS).into_iter().collect();
        let now = promises(&set.encode_to_vec());
        broken(&promised.join("\n"), &now).len()
    };
    assert_eq!(change(&|_| ()), 0);
    assert_eq!(change(&|file| drop(file.service[0].method.pop())), 1);
    assert_eq!(change(&|file| file.service[0].method[0].server_streaming = Some(false)), 1);
    assert_eq!(change(&|file| drop(file.enum_type[0].value.pop())), 1);
    let field = |file: &mut prost_types::FileDescriptorProto,
                 edit: &dyn Fn(&mut FieldDescriptorProto)| {
        let record = file.message_type.iter_mut().find(|m| m.name() == "Record").unwrap();
        edit(&mut record.field[0]);
    };
    assert_eq!(change(&|file| field(file, &|seq| seq.number = Some(99))), 1);
    assert_eq!(change(&|file| field(file, &|seq| seq.name = Some("number".into()))), 1);
    assert_eq!(change(&|file| field(file, &|seq| seq.set_type(Type::Int32))), 1);
    assert_eq!(change(&|file| field(file, &|seq| seq.set_label(Label::Repeated))), 1);
    let grown = |file: &mut prost_types::FileDescriptorProto| {
        let mut more = file.message_type[0].field[0].clone();
        (more.name, more.number) = (Some("more".into()), Some(77));
        file.message_type[0].field.push(more);
    };
    assert_eq!(change(&grown), 0, "it may grow");
}
