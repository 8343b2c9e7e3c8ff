package cli

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
)

// eventCell says what happened, in one line.
func eventCell(e nestor.Event) cell {
	colour := ""
	switch e := e.(type) {
	case *nestor.ErrorEvent, *nestor.RunCancelled:
		colour = "31"
	case *nestor.ExecutionComplete:
		colour = stateCell(e.Status).colour
	case *nestor.Ask, *nestor.RunWaiting, *nestor.RunRetry:
		colour = "33"
	case *nestor.ThinkingComplete, *nestor.ExecutionProgress:
		colour = "2"
	}
	return cell{plainLine(eventText(e), 200), colour}
}

// eventText is what eventCell says, with whatever is in the event.
func eventText(e nestor.Event) string {
	switch e := e.(type) {
	case *nestor.ChatStart:
		return "told: " + e.Message
	case *nestor.ChatComplete:
		return "answered" + unless(e.Success, ", without success")
	case *nestor.AgentStart:
		return join("agent", e.Agent, "begins")
	case *nestor.AgentDelta:
		return e.Delta
	case *nestor.AgentComplete:
		return "says: " + e.Content
	case *nestor.ThinkingStart:
		return "thinks"
	case *nestor.ThinkingDelta:
		return e.Delta
	case *nestor.ThinkingComplete:
		return "thought: " + e.Thinking
	case *nestor.ToolStart:
		if e.Description != "" {
			return join("calls", e.Tool+":", e.Description)
		}
		return join("calls", e.Tool, string(e.Input))
	case *nestor.ToolComplete:
		return join(e.Tool, "returned"+unless(e.Success, " an error")+":", e.Summary)
	case *nestor.ProviderMessage:
		return join("provider:", string(e.Raw))
	case *nestor.ErrorEvent:
		return join("error", string(e.Kind)+":", e.Message)
	case *nestor.AgentSpawn:
		return join("starts", shortID(e.Child), e.Agent, e.Description)
	case *nestor.ExecutionStart:
		return join("attempt", fmt.Sprint(max(e.Attempt, 1)), "begins", e.Workspace)
	case *nestor.ExecutionProgress:
		if e.Progress > 0 {
			return fmt.Sprintf("%.0f%% %s", 100*e.Progress, e.Activity)
		}
		if e.Activity == "" {
			return fmt.Sprintf("%s, %s so far", numberOf(e.Turns, "turn"), dollars(e.CostUSD))
		}
		return e.Activity
	case *nestor.ExecutionComplete:
		return endText(e)
	case *nestor.RunQueued:
		return join("queued", e.Reason)
	case *nestor.RunWaiting:
		return join("waits for", waitText(e))
	case *nestor.RunResumed:
		return join("goes on", e.Reason)
	case *nestor.RunRetry:
		return join("attempt", fmt.Sprint(e.Attempt), "at", e.At.UTC().Format("15:04:05Z"), e.Reason)
	case *nestor.RunCancelled:
		return join("is to end:", e.Cause.Error())
	case *nestor.Lease:
		if e.Spent != 0 || e.Returned != 0 {
			return join(shortID(e.Child), "spent", dollars(e.Spent), "and gave back", dollars(e.Returned))
		}
		return join("grants", shortID(e.Child), dollars(e.Granted))
	case *nestor.Decision:
		if e.Allowed {
			return join("allows", e.Tool, "by", e.Rule)
		}
		return join("denies", e.Tool, "by", e.Rule+":", e.Reason)
	case *nestor.WorkspaceWrite:
		return join(e.Action, e.Path)
	case *nestor.NetworkDial:
		return connectionText(e)
	case *nestor.Ask:
		return join("asks", e.AskID+":", e.Question, e.Tool, string(e.Input))
	case *nestor.Answer:
		return join("answer to", e.AskID+":", e.Decision, unless(e.By == "", "by "+e.By))
	case *nestor.Letter:
		return join("letter from", e.From, "to", e.To+":", e.Content)
	case *nestor.UnknownEvent:
		return join(e.Type, string(e.Raw))
	}
	return fmt.Sprintf("%T", e)
}

func endText(e *nestor.ExecutionComplete) string {
	text := fmt.Sprintf("ended: %s, %s", e.Status, dollars(e.CostUSD))
	switch {
	case e.Error != nil:
		text += ", " + e.Error.Error()
	case e.ResultSummary != "":
		text += ": " + e.ResultSummary
	}
	return text
}

func connectionText(e *nestor.NetworkDial) string {
	to := ""
	if e.Host != "" {
		to = "to " + e.Host
	}
	if e.Port != 0 {
		to = "to " + net.JoinHostPort(e.Host, strconv.Itoa(e.Port))
	}
	if !e.Allowed {
		return join("refuses a connection", to, "by", e.Rule+":", e.Reason)
	}
	return join("connected", to, "by", e.Rule+":", fmt.Sprintf("%d bytes out, %d in, %v", e.Sent, e.Received, time.Duration(e.Millis)*time.Millisecond), e.Reason)
}

func waitText(e *nestor.RunWaiting) string {
	words := []string{string(e.Wait.For)}
	for _, id := range e.Wait.Runs {
		words = append(words, shortID(id))
	}
	return join(append(words, e.Wait.Ask, e.Reason)...)
}

// join puts what is not empty into one line. A colon with nothing behind it
// is left out.
func join(words ...string) string {
	var list []string
	for _, word := range words {
		if word != "" && word != ":" {
			list = append(list, word)
		}
	}
	return strings.TrimSuffix(strings.Join(list, " "), ":")
}

func unless(is bool, text string) string {
	if is {
		return ""
	}
	return text
}
