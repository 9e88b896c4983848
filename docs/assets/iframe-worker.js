// Browsers start no Worker for a page that was opened from a folder (file://). Search runs in one, so here a hidden
// frame takes its place: it has globals of its own, and messages go in and out as a Worker's do.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.frame = frame
      this.inside = frame.contentWindow
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = this.inside.document.createElement("script")
      script.src = new URL(url, location.href).href
      this.started = new Promise(resolve => { script.onload = resolve })
      this.inside.document.body.append(script)
    }

    postMessage(data) {
      this.started.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
