//! Capabilities: none, and none to be had.

use rustix::{
    io::Errno,
    process::{DumpableBehavior, set_dumpable_behavior},
    thread::{
        CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capability_is_in_bounding_set,
        clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
        set_capabilities_secure_bits, set_no_new_privs,
    },
};
use std::io;

/// Empties all five sets, and has no program fill them again.
pub(crate) fn drop_all() -> io::Result<()> {
    use CapabilitiesSecureBits as Bits;
    // Both need a capability, which one has in a user namespace and an ordinary user has not. Without it they are not needed: such a
    // process has nothing that they would take, and what follows keeps it from getting any.
    let _ = set_capabilities_secure_bits(
        Bits::NO_ROOT
            | Bits::NO_ROOT_LOCKED
            | Bits::NO_SETUID_FIXUP
            | Bits::NO_SETUID_FIXUP_LOCKED
            | Bits::KEEP_CAPS_LOCKED
            | Bits::NO_CAP_AMBIENT_RAISE
            | Bits::NO_CAP_AMBIENT_RAISE_LOCKED,
    );
    // As many as this kernel has: it may know more than we do.
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(one) {
            Ok(true) => {
                let _ = remove_capability_from_bounding_set(one);
            }
            Ok(false) => {}
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    clear_ambient_capability_set()?;
    drop_now()?;
    no_new()?;
    // Its memory is no other process's of the same user, either.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Has no program that this process starts get more than it has: for good, and for its children.
pub(crate) fn no_new() -> io::Result<()> {
    Ok(set_no_new_privs(true)?)
}

/// Empties the sets of what this process has, and could take.
pub(crate) fn drop_now() -> io::Result<()> {
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
    Ok(())
}
