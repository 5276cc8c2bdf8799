//! `condprog join`

use condprog_convert::{JoinOptions, join};

use super::compress::{lines, written};
use crate::Outcome;
use crate::arguments::Join;
use crate::error::{Again, Error};
use crate::text::path_text;
use crate::ui::Ui;

pub(crate) fn run(arguments: &Join, ui: &Ui) -> Result<Outcome, Error> {
    let options = JoinOptions { force: arguments.force.on };
    let report = ui.job(Again::Restarts, |progress| join(&arguments.parts, &arguments.output, &options, progress))?;
    let mut object = written(&report);
    object["parts"] = arguments.parts.iter().map(path_text).collect();
    object["output"] = path_text(&arguments.output).into();
    ui.print("join", object, || lines(&report, &arguments.output))?;
    Ok(Outcome::Done)
}
