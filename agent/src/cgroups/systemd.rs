//! systemd over D-Bus: the properties of units, so that systemd writes what the plan says whenever it writes at all.
//!
//! Only this file names zbus. Every call has a deadline; properties are set for the running system, never on disk.

use ebb_policy::cgroups::plan::Property;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use zbus::connection::{self, Connection};
use zbus::message::Message;
use zbus::{OwnedObjectPath, Variant};

const SERVICE: &str = "org.freedesktop.systemd1";
const OBJECT: &str = "/org/freedesktop/systemd1";
const INTERFACE: &str = "org.freedesktop.systemd1.Manager";
/// The bus's socket by its own name; its standard address leads through a link in `/var`.
const SOCKET: &str = "unix:path=/run/dbus/system_bus_socket";
/// How long systemd may take to answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// What can only be said when a unit is made.
const AT_START: &str = "DefaultDependencies";

/// Properties by name.
pub type Properties = Vec<(String, Property)>;

/// systemd's manager.
#[derive(Debug)]
pub struct Manager {
    // The connection lives on this runtime, which only runs while a call is made.
    runtime: Runtime,
    connection: Connection,
}

impl Manager {
    /// Connects to the system bus.
    ///
    /// # Errors
    /// Why systemd cannot be reached.
    pub fn connect() -> Result<Manager, String> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start an event loop: {error}"))?;
        let connect = async {
            let standard = connection::Builder::system().method_timeout(DEADLINE).build().await;
            match standard {
                // Where the standard place is not there, as in a container that only has /run mounted.
                Err(_) => {
                    let builder = connection::Builder::address(SOCKET);
                    builder.method_timeout(DEADLINE).build().await
                }
                connected => connected,
            }
        };
        match runtime.block_on(async { tokio::time::timeout(DEADLINE, connect).await }) {
            Ok(Ok(connection)) => Ok(Manager { runtime, connection }),
            Ok(Err(error)) => Err(format!("cannot connect to the system bus: {error}")),
            Err(_) => Err("cannot connect to the system bus: it does not answer".to_owned()),
        }
    }

    /// Sets properties of a loaded unit.
    ///
    /// # Errors
    /// What systemd said, naming the unit.
    pub fn set(&self, unit: &str, properties: &[(String, Property)]) -> Result<(), String> {
        let settable = given(properties, |name| name != AT_START);
        if settable.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = settable.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        let body = (unit, true, settable);
        self.call("SetUnitProperties", &body)
            .map(drop)
            .map_err(|error| format!("{unit}: systemd did not take {names}: {error}"))
    }

    /// Makes a slice and starts it; it is there once systemd has done the job, a moment after this.
    ///
    /// # Errors
    /// What systemd said, naming the unit.
    pub fn start_slice(&self, unit: &str, properties: &[(String, Property)]) -> Result<(), String> {
        let properties = given(properties, |_| true);
        let others: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
        let body = (unit, "replace", properties, others);
        let job = self.call("StartTransientUnit", &body);
        let job = job.and_then(|reply| reply.body().deserialize::<OwnedObjectPath>());
        job.map(drop).map_err(|error| format!("{unit}: systemd did not make it: {error}"))
    }

    fn call<B: serde::Serialize + zbus::wire::DynamicType>(
        &self,
        method: &str,
        body: &B,
    ) -> zbus::Result<Message> {
        self.runtime.block_on(self.connection.call_method(
            Some(SERVICE),
            OBJECT,
            Some(INTERFACE),
            method,
            body,
        ))
    }
}

fn given(
    properties: &[(String, Property)],
    wanted: impl Fn(&str) -> bool,
) -> Vec<(&str, Variant<'_>)> {
    let chosen = properties.iter().filter(|(name, _)| wanted(name));
    chosen
        .map(|(name, property)| {
            let value = match property {
                Property::Flag(flag) => Variant::from(*flag),
                Property::Number(number) => Variant::from(*number),
                Property::Cpus(bits) => Variant::from(bits.as_slice()),
            };
            (name.as_str(), value)
        })
        .collect()
}
