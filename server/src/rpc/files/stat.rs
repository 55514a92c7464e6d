//! Stat: metadata of one file or directory.

use dormouse_files::{Fault, stat, stat::StatPlan};
use dormouse_proto::files::v1;
use tonic::Request;

use crate::{
    host::{Feature, ReadSource, Walk, error::Failure},
    rpc::{
        files::{
            Files, ReadCall, encode,
            fields::{self, Names},
            first_byte,
        },
        lane,
    },
};

fn decode(request: &v1::StatRequest) -> Result<(StatPlan, ReadSource), Fault> {
    fields::workspace(&request.workspace)?;
    let path = fields::path("path", &request.path, &request.raw_path, Names::Any)?;
    let plan = StatPlan { path, include_revision: request.include_revision };
    Ok((plan, fields::source(request.source)?))
}

impl Files {
    pub(super) async fn do_stat(&self, request: Request<v1::StatRequest>) -> Result<v1::StatResponse, Failure> {
        let caller = self.caller(&request)?;
        let request = request.into_inner();
        let (plan, source) = decode(&request)?;
        let ReadCall { reading, room, budget } = self.reading(&request.workspace, &caller, None, source, first_byte)?;
        reading.check_path(&plan.path, Walk::No)?;
        if let Some(relay) = Self::relay(&reading, &request.workspace, &caller) {
            let wanted = plan.include_revision && self.host.has(Feature::FileRevision);
            return relay.stat(request, &plan.path, wanted, room).await;
        }
        let revisions = self.revisions(plan.include_revision, &reading);
        let host = self.host.clone();
        let (entry, origin) = lane::look(budget, move |budget| {
            let _room = room;
            let (place, origin) = reading.open(&host)?;
            let entry = stat::run(&place, &plan, revisions, &host.settings().limits, budget)
                .map_err(|fault| reading.told(fault.into()))?;
            Ok((entry, origin))
        })
        .await?;
        Ok(v1::StatResponse { file: Some(encode::entry(&entry)), origin: Some(encode::origin(origin)) })
    }
}
