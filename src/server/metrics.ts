import type { ServerResponse } from 'node:http'
import type { Registry } from 'prom-client'

/** Answers with an engine's figures in Prometheus' text form. */
export async function answerMetrics(registry: Registry, response: ServerResponse): Promise<void> {
  const body = await registry.metrics()
  response.writeHead(200, { 'content-type': registry.contentType, 'cache-control': 'no-store' })
  response.end(body)
}
