//! `hitm schema`.

use clap::{Args, ValueEnum};
use hitm_report::{
    advice, check, compare, job, result, rules, schema, sweep, this_machine, uncertainty, validation,
    validation_uncertainty,
};

use crate::failure::Failure;
use crate::print_as_it_is;

/// Print the JSON schema of a file that `--json` writes.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hitm schema > result.schema.json\n  hitm schema sweep")]
pub(crate) struct Schema {
    /// Command that writes the file.
    #[arg(value_enum, default_value = "run")]
    form: Form,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    /// `hitm run --json` and `hitm c2c --json`.
    Run,
    /// `hitm run --uncertainty N --json`.
    Uncertainty,
    /// `hitm sweep --json`.
    Sweep,
    /// What `hitm job` reads.
    Job,
    /// What `hitm job` writes.
    JobResult,
    /// `hitm compare --json`.
    Compare,
    /// `hitm advise --json`.
    Advise,
    /// `hitm exec --check --json`.
    Check,
    /// `hitm check --json`.
    Rules,
    /// `hitm validate --json`.
    Validate,
    /// `hitm validate --uncertainty N --json`.
    ValidateUncertainty,
    /// `hitm validate --this --json`.
    ValidateThis,
}

impl Schema {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let name = match self.form {
            Form::Run => result::SCHEMA,
            Form::Uncertainty => uncertainty::SCHEMA,
            Form::Sweep => sweep::SCHEMA,
            Form::Job => job::JOB,
            Form::JobResult => job::DONE,
            Form::Compare => compare::SCHEMA,
            Form::Advise => advice::SCHEMA,
            Form::Check => check::SCHEMA,
            Form::Rules => rules::SCHEMA,
            Form::Validate => validation::SCHEMA,
            Form::ValidateUncertainty => validation_uncertainty::SCHEMA,
            Form::ValidateThis => this_machine::SCHEMA,
        };
        print_as_it_is(schema::schema(name).expect("every form has a schema").as_bytes())
    }
}
