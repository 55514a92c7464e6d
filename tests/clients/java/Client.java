// The files of a workspace from Java, with generated code and nothing else: Client ADDRESS WORKSPACE
import com.google.protobuf.Any;
import com.google.rpc.ErrorInfo;
import dormouse.files.v1.FilesServiceGrpc;
import dormouse.files.v1.Files.Edit;
import dormouse.files.v1.Files.EditList;
import dormouse.files.v1.Files.Match;
import dormouse.files.v1.Files.PatchRequest;
import dormouse.files.v1.Files.SearchRequest;
import dormouse.files.v1.Files.SearchResponse;
import dormouse.files.v1.Files.StatRequest;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.util.Iterator;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

public final class Client {
  /** The one ErrorInfo of a refusal; empty where a proxy answered instead of the agent. */
  static ErrorInfo errorInfo(StatusRuntimeException error) throws Exception {
    com.google.rpc.Status status = StatusProto.fromThrowable(error);
    for (Any detail : status.getDetailsList()) {
      if (detail.is(ErrorInfo.class)) return detail.unpack(ErrorInfo.class);
    }
    return ErrorInfo.getDefaultInstance();
  }

  public static void main(String[] words) throws Exception {
    String workspace = words[1];
    ManagedChannel channel = ManagedChannelBuilder.forTarget(words[0]).usePlaintext().build();
    FilesServiceGrpc.FilesServiceBlockingStub client = FilesServiceGrpc.newBlockingStub(channel);

    // One question, one answer.
    String path = "/home/user/project/app.py";
    StatRequest stat = StatRequest.newBuilder().setWorkspace(workspace).setPath(path).setIncludeRevision(true).build();
    String revision = client.stat(stat).getFile().getRevision();
    System.out.println("revision " + revision);

    // A stream: it is complete only when its last message carries `end`.
    SearchRequest search =
        SearchRequest.newBuilder().setWorkspace(workspace).setPath("/home/user/project").setPattern("TODO").build();
    boolean ended = false;
    for (Iterator<SearchResponse> messages = client.search(search); messages.hasNext(); ) {
      SearchResponse message = messages.next();
      for (Match match : message.getMatchesList()) {
        System.out.println(match.getPath() + ":" + match.getLine() + ": " + match.getText());
      }
      ended = message.hasEnd();
    }
    if (!ended) throw new IllegalStateException("the answer broke off");

    // An error: branch on the reason, never on the message.
    try {
      client.stat(StatRequest.newBuilder().setWorkspace(workspace).setPath("/home/user/nothing").build());
    } catch (StatusRuntimeException error) {
      ErrorInfo info = errorInfo(error);
      System.out.println(info.getReason() + " " + info.getMetadataOrThrow("missing"));
    }

    // A change: one key for all attempts at it, and the revision that it is held to.
    Edit edit = Edit.newBuilder().setOldText("DEBUG = True").setNewText("DEBUG = False").build();
    PatchRequest patch =
        PatchRequest.newBuilder()
            .setWorkspace(workspace)
            .setPath(path)
            .setEdits(EditList.newBuilder().addEdits(edit))
            .setExpectedRevision(revision)
            .setIdempotencyKey(UUID.randomUUID().toString())
            .build();
    System.out.println("patched " + client.patch(patch).getRevision());
    channel.shutdown().awaitTermination(10, TimeUnit.SECONDS);
  }
}
