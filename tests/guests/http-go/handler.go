// An HTTP component in Go: tells the request's method, path and headers, or answers with its body, piece for piece.
package export_wasi_http_incoming_handler

import (
	"fmt"
	"runtime/debug"
	"strings"

	wit "go.bytecodealliance.org/pkg/wit/types"
	types "wit_component/wasi_http_types"
)

var calls int

// Go's collector reads the clock. In a component it must not while the host allocates in it, and an instance of one request
// has nothing to collect.
func init() {
	debug.SetGCPercent(-1)
}

func Handle(request *types.IncomingRequest, out *types.ResponseOutparam) {
	defer request.Drop()
	calls++
	path := request.PathWithQuery().SomeOr("")
	response := types.MakeOutgoingResponse(types.FieldsFromList([]wit.Tuple2[string, []uint8]{
		{F0: "x-calls", F1: []byte(fmt.Sprint(calls))},
	}).Ok())
	body := response.Body().Ok()
	to := body.Write().Ok()
	types.ResponseOutparamSet(out, wit.Ok[*types.OutgoingResponse, types.ErrorCode](response))
	if strings.HasSuffix(path, "/echo") {
		source := request.Consume().Ok()
		from := source.Stream().Ok()
		for {
			piece := from.BlockingRead(4096)
			if piece.IsErr() {
				break
			}
			to.BlockingWriteAndFlush(piece.Ok())
		}
		from.Drop()
		source.Drop()
	} else {
		to.BlockingWriteAndFlush([]byte(describe(request, path)))
	}
	to.Drop()
	types.OutgoingBodyFinish(body, wit.None[*types.Fields]())
}

func describe(request *types.IncomingRequest, path string) string {
	method := map[uint8]string{types.MethodGet: "GET", types.MethodPost: "POST", types.MethodPut: "PUT"}
	headers := request.Headers()
	defer headers.Drop()
	text := fmt.Sprintln(method[request.Method().Tag()], path)
	for _, value := range headers.Get("x-said") {
		text += fmt.Sprintln(string(value))
	}
	return text
}
