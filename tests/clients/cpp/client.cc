// The files of a workspace from C++, with generated code and nothing else: client ADDRESS WORKSPACE
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "dormouse/files/v1/files.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace files = dormouse::files::v1;

// The one ErrorInfo of a refusal; empty where a proxy answered instead of the agent.
google::rpc::ErrorInfo ErrorInfoOf(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  if (details.ParseFromString(status.error_details())) {
    for (const auto& detail : details.details()) {
      if (detail.Is<google::rpc::ErrorInfo>() && detail.UnpackTo(&info)) break;
    }
  }
  return info;
}

// Ends the program, telling why a call was refused.
void Expect(const grpc::Status& status) {
  if (status.ok()) return;
  std::cerr << ErrorInfoOf(status).reason() << ": " << status.error_message() << "\n";
  std::exit(1);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string workspace = argv[2];
  auto stub = files::FilesService::NewStub(grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()));

  // One question, one answer.
  files::StatRequest stat;
  stat.set_workspace(workspace);
  stat.set_path("/home/user/project/app.py");
  stat.set_include_revision(true);
  files::StatResponse known;
  {
    grpc::ClientContext context;
    Expect(stub->Stat(&context, stat, &known));
  }
  std::cout << "revision " << known.file().revision() << "\n";

  // A stream: it is complete only when its last message carries `end`.
  files::SearchRequest search;
  search.set_workspace(workspace);
  search.set_path("/home/user/project");
  search.set_pattern("TODO");
  {
    grpc::ClientContext context;
    auto reader = stub->Search(&context, search);
    files::SearchResponse message;
    bool ended = false;
    while (reader->Read(&message)) {
      for (const auto& match : message.matches()) {
        std::cout << match.path() << ":" << match.line() << ": " << match.text() << "\n";
      }
      ended = message.has_end();
    }
    Expect(reader->Finish());
    if (!ended) return 1;
  }

  // An error: branch on the reason, never on the message.
  stat.set_path("/home/user/nothing");
  {
    grpc::ClientContext context;
    files::StatResponse none;
    const grpc::Status refused = stub->Stat(&context, stat, &none);
    const google::rpc::ErrorInfo info = ErrorInfoOf(refused);
    std::cout << info.reason() << " " << info.metadata().at("missing") << "\n";
  }

  // A change: one key for all attempts at it, and the revision that it is held to.
  files::PatchRequest patch;
  patch.set_workspace(workspace);
  patch.set_path("/home/user/project/app.py");
  auto* edit = patch.mutable_edits()->add_edits();
  edit->set_old_text("DEBUG = True");
  edit->set_new_text("DEBUG = False");
  patch.set_expected_revision(known.file().revision());
  std::string key;
  std::getline(std::ifstream("/proc/sys/kernel/random/uuid"), key);
  patch.set_idempotency_key(key);
  files::PatchResponse done;
  {
    grpc::ClientContext context;
    Expect(stub->Patch(&context, patch, &done));
  }
  std::cout << "patched " << done.revision() << "\n";
}
