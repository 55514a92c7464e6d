// The files of a workspace from Go, with generated code and nothing else: client ADDRESS WORKSPACE
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	files "dormouse/files/v1"
)

// errorInfo is the one ErrorInfo of a refusal; nil where a proxy answered instead of the agent.
func errorInfo(err error) *errdetails.ErrorInfo {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}

// newKey is made once for a change, not once for an attempt.
func newKey() string {
	var bytes [16]byte
	if _, err := rand.Read(bytes[:]); err != nil {
		log.Fatal(err)
	}
	return fmt.Sprintf("%x", bytes)
}

func main() {
	address, workspace := os.Args[1], os.Args[2]
	connection, err := grpc.Dial(address, grpc.WithInsecure())
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	client := files.NewFilesServiceClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	// One question, one answer.
	path := "/home/user/project/app.py"
	known, err := client.Stat(ctx, &files.StatRequest{Workspace: workspace, Path: path, IncludeRevision: true})
	if err != nil {
		log.Fatalf("%s: %v", errorInfo(err).GetReason(), err)
	}
	fmt.Println("revision", known.GetFile().GetRevision())

	// A stream: it is complete only when its last message carries `end`.
	stream, err := client.Search(ctx, &files.SearchRequest{Workspace: workspace, Path: "/home/user/project", Pattern: "TODO"})
	if err != nil {
		log.Fatal(err)
	}
	ended := false
	for {
		message, err := stream.Recv()
		if err == io.EOF {
			break
		} else if err != nil {
			log.Fatalf("%s: %v", errorInfo(err).GetReason(), err)
		}
		for _, match := range message.GetMatches() {
			fmt.Printf("%s:%d: %s\n", match.GetPath(), match.GetLine(), match.GetText())
		}
		ended = message.GetEnd() != nil
	}
	if !ended {
		log.Fatal("the answer broke off")
	}

	// An error: branch on the reason, never on the message.
	_, err = client.Stat(ctx, &files.StatRequest{Workspace: workspace, Path: "/home/user/nothing"})
	info := errorInfo(err)
	fmt.Println(info.GetReason(), info.GetMetadata()["missing"])

	// A change: one key for all attempts at it, and the revision that it is held to.
	edit := &files.Edit{OldText: "DEBUG = True", NewText: "DEBUG = False"}
	revision := known.GetFile().GetRevision()
	done, err := client.Patch(ctx, &files.PatchRequest{
		Workspace:        workspace,
		Path:             path,
		Change:           &files.PatchRequest_Edits{Edits: &files.EditList{Edits: []*files.Edit{edit}}},
		ExpectedRevision: &revision,
		IdempotencyKey:   newKey(),
	})
	if err != nil {
		log.Fatalf("%s: %v", errorInfo(err).GetReason(), err)
	}
	fmt.Println("patched", done.GetRevision())
}
