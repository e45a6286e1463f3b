//! hitm's own scheduler, the mitigation `shipped`: a waiting task is advertised to the CPUs that
//! could run it. It names nothing of [`linux`](crate::linux).

pub(crate) mod announce;
pub(crate) mod floor;
pub(crate) mod hints;
pub(crate) mod ids;
pub(crate) mod near;
pub(crate) mod waiting;
