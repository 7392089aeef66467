"""Models that answer over HTTP: texts in, trees out, as clients of UDPipe's service ask."""
