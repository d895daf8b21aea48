//! ebb, the node reclaimer: see `ARCHITECTURE.md` for the loop that these modules form.
